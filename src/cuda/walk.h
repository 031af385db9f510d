// A loop plan (core/loop.h) in the form that kernels take: element indices have 32 bits, divisions
// by the shape are multiplications, and Python scalars are passed by value. Every elementwise
// kernel uses it.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/check.h"
#include "core/loop.h"
#include "device.h"

namespace needle::cuda {

// The largest number of elements per launch, so that the sum of two indices fits 32 bits. It is
// small in the tests' emulator, so that tests cover the division into launches.
#ifdef NEEDLE_CUDA_ON_CPU
inline constexpr std::int64_t kPart = 1 << 14;
#else
inline constexpr std::int64_t kPart = 1 << 30;
#endif

// The number of loads that a thread issues before it uses the first one (stream). With more,
// kernels on doubles would spill registers.
template <class T>
inline constexpr int kInFlight = sizeof(T) <= 4 ? 4 : 1;

// Calls use(i, load(i)) for i = begin, begin + step, ... < end, in this order; T is the type that
// load reads. kInFlight loads are issued before the first value is used. In a plain loop the
// compiler would wait for each load.
template <class T, class Load, class Use>
__device__ void stream(std::uint32_t begin, std::uint32_t end, std::uint32_t step, Load&& load,
                       Use&& use) {
  constexpr std::uint32_t kMany = kInFlight<T>;
  std::uint32_t i = begin;
  for (; i + (kMany - 1) * step < end; i += kMany * step) {
    decltype(load(i)) loaded[kMany];
#pragma unroll
    for (std::uint32_t j = 0; j < kMany; ++j) loaded[j] = load(i + j * step);
#pragma unroll
    for (std::uint32_t j = 0; j < kMany; ++j) use(i + j * step, loaded[j]);
  }
#pragma unroll 1
  for (; i < end; i += step) use(i, load(i));
}

// Divides any n < 2^31 by a fixed divisor with one multiplication (Granlund and Montgomery, 1994).
struct Divisor {
  std::uint32_t divisor = 1, multiplier = 1, shift = 0;

  Divisor() = default;
  explicit Divisor(std::int64_t d) : divisor(static_cast<std::uint32_t>(d)) {
    while ((std::uint64_t(1) << shift) < divisor) ++shift;
    multiplier = static_cast<std::uint32_t>(
        ((std::uint64_t(1) << 32) * ((std::uint64_t(1) << shift) - divisor)) / divisor + 1);
  }
  __device__ std::uint32_t quotient(std::uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

struct Walk {
  int ndim = 1;
  std::uint32_t size = 0;
  Divisor shape[kMaxDims];
  std::int64_t strides[kMaxOperands][kMaxDims] = {};  // in bytes
  char* data[kMaxOperands] = {};
  alignas(8) unsigned char scalars[kMaxOperands][8] = {};
  bool is_scalar[kMaxOperands] = {};  // the operand is scalars[k]
  bool constant[kMaxOperands] = {};   // the same value for all elements
  bool dense = false;                 // every operand is contiguous or constant
};

// The byte offset of element `index` from data[k] for each operand k.
template <int kOperands>
struct Offsets {
  std::int64_t bytes[kOperands];
};

template <int kOperands>
__device__ Offsets<kOperands> locate(const Walk& walk, std::uint32_t index) {
  /// BEGIN SOLUTION [cuda-locate]
  Offsets<kOperands> offsets = {};
  for (int i = walk.ndim - 1; i > 0; --i) {
    const std::uint32_t rest = walk.shape[i].quotient(index);
    const std::uint32_t coordinate = index - rest * walk.shape[i].divisor;
    for (int k = 0; k < kOperands; ++k) offsets.bytes[k] += coordinate * walk.strides[k][i];
    index = rest;
  }
  for (int k = 0; k < kOperands; ++k) offsets.bytes[k] += index * walk.strides[k][0];
  return offsets;
  /// END SOLUTION
}

// Converts a plan. `views` has the views of the plan's operands, in order. They tell which operands
// are scalars, and the size of an element.
inline Walk make_walk(const LoopPlan& plan, const View* const* views) {
  Walk walk;
  walk.ndim = plan.ndim;
  walk.size = static_cast<std::uint32_t>(plan.size);
  walk.dense = true;
  for (int i = 0; i < plan.ndim; ++i) walk.shape[i] = Divisor(plan.shape[i]);
  for (int k = 0; k < plan.operands; ++k) {
    walk.data[k] = plan.data[k];
    walk.constant[k] = plan.size > 1 || views[k]->is_scalar;  // one element may be overwritten
    for (int i = 0; i < plan.ndim; ++i) {
      walk.strides[k][i] = plan.strides[k][i];
      walk.constant[k] = walk.constant[k] && (plan.strides[k][i] == 0 || plan.shape[i] == 1);
    }
    const auto item = std::int64_t(size_of(views[k]->dtype));
    const bool run = plan.ndim == 1 && (plan.strides[k][0] == item || plan.size == 1);
    walk.dense = walk.dense && (run || (walk.constant[k] && k > 0));
    if (views[k]->is_scalar) {
      walk.is_scalar[k] = true;
      std::memcpy(walk.scalars[k], views[k]->data, size_of(computed(views[k]->dtype)));
    }
  }
  return walk;
}

// Throws Error unless the count of rows or pixels is below 2^31.
inline void check_count(const char* op, std::int64_t count) {
  if (count >= std::int64_t(1) << 31) {
    raise_error(std::string(op) + ": a GPU takes fewer than 2147483648 rows or pixels, got " +
                std::to_string(count) + "; cut the array");
  }
}

// Divides the plan along its outer dimensions and calls f(part) for parts of at most kMost
// elements.
template <std::int64_t kMost = kPart, class F>
void in_parts(const LoopPlan& plan, F&& f) {
  if (plan.size <= kMost) return f(plan);
  int i = 0;
  while (plan.shape[i] == 1) ++i;
  const std::int64_t first = plan.shape[i] / 2;
  for (const bool second : {false, true}) {
    LoopPlan half = plan;
    half.shape[i] = second ? plan.shape[i] - first : first;
    half.size = plan.size / plan.shape[i] * half.shape[i];
    for (int k = 0; second && k < plan.operands; ++k) {
      half.data[k] += first * plan.strides[k][i];
    }
    in_parts<kMost>(half, f);
  }
}

}  // namespace needle::cuda
