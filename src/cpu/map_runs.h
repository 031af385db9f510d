// Applies a function to the elements of a plan's runs, for fill, casts and the gradient of ReLU.
// The elementwise operations have loops of their own (elementwise.cc).
#pragma once

#include <utility>

#include "core/loop.h"
#include "core/simd.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

template <class R, class... T, class F, std::size_t... k>
void map_operands(const LoopPlan& plan, F f, std::index_sequence<k...>) {
  const int last = plan.ndim - 1;
  const std::int64_t out_stride = plan.strides[0][last];
  const bool dense = out_stride == sizeof(R) && (... && (plan.strides[k + 1][last] == sizeof(T)));
  const auto along = [=](std::int64_t n, R* out, const T*... in) {
    NEEDLE_INDEPENDENT
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(in[i]...);
  };
  parallel_runs(plan, kGrain, [=, &plan](std::int64_t n, char* const data[]) {
    if (dense) {
      along(n, reinterpret_cast<R*>(data[0]), reinterpret_cast<const T*>(data[k + 1])...);
      return;
    }
    const std::int64_t strides[] = {plan.strides[0][last], plan.strides[k + 1][last]...};
    for (std::int64_t i = 0; i < n; ++i) {
      *reinterpret_cast<R*>(data[0] + i * strides[0]) =
          f(*reinterpret_cast<const T*>(data[k + 1] + i * strides[k + 1])...);
    }
  });
}

// Computes out = f(operands...) with a result of type R and operands of types T...
template <class R, class... T, class F>
void map_runs(const LoopPlan& plan, F f) {
  map_operands<R, T...>(plan, f, std::index_sequence_for<T...>());
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
