// The maximum of a run and its sum of exponentials, for softmax and cross entropy.
#pragma once

#include "core/scalar_math.h"
#include "runs.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// Returns the maximum of n >= 1 elements; NaN wins.
template <class T>
T largest(const T* a, Index n) {
  using V = simd::Vector<T>;
  constexpr Index W = simd::kLanes<T>;
  T best = a[0];
  bool unordered = best != best;
  Index i = 0;
  if (n >= W) {
    V highest = simd::load(a);
    auto nan = highest != highest;
    for (; i + W <= n; i += W) {
      const V v = simd::load(a + i);
      highest = v > highest ? v : highest;
      nan |= v != v;
    }
    for (Index lane = 0; lane < W; ++lane) {
      best = highest[lane] > best ? highest[lane] : best;
      unordered |= nan[lane] != 0;
    }
  }
  for (; i < n; ++i) {
    best = a[i] > best ? a[i] : best;
    unordered |= a[i] != a[i];
  }
  return unordered ? T(NAN) : best;
}

// Writes out = exp(a - shift) and returns the sum. A short row is computed as one vector.
template <class T>
T exp_sum(const T* a, Index n, T shift, T* out) {
  constexpr Index W = simd::kLanes<T>;
  if (n < W) {
    T lanes[W];
    for (Index i = 0; i < W; ++i) lanes[i] = i < n ? a[i] - shift : T(0);
    for (Index i = 0; i < W; ++i) lanes[i] = math::exp(lanes[i]);
    for (Index i = 0; i < n; ++i) out[i] = lanes[i];
  } else {
    for (Index i = 0; i < n; ++i) out[i] = math::exp(a[i] - shift);
  }
  double total[1] = {};
  const Run<T> run{out, 1};
  sum_terms<T>(n, true, total, [&run](auto v, Index i, auto* sums) {
    sums[0] += run.template get<decltype(v)>(i);
  });
  return T(total[0]);
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
