// A row's maximum and its sum of exponentials, for softmax and cross entropy.
#pragma once

#include <limits>

#include "core/scalar_math.h"
#include "rows.h"

namespace needle::cuda {
namespace {

// The maximum may ignore NaN, because the sum then becomes NaN.
template <class T, int kLanes>
__device__ T largest(const RowLanes<T, kLanes>& lanes, const Row<const T>& a) {
  T best = -std::numeric_limits<T>::infinity();
  stream<T>(
      lanes.lane, a.n, kLanes, [&](std::uint32_t i) { return a[i]; },
      [&](std::uint32_t, T x) { best = math::maximum(best, x); });
  return lanes.fold(best, [](T x, T y) { return math::maximum(x, y); });
}

template <class T, int kLanes>
__device__ T exp_sum(const RowLanes<T, kLanes>& lanes, const Row<const T>& a, T shift) {
  return lanes.sum_of(a.n, [&](std::uint32_t i) { return math::exp(a[i] - shift); });
}

}  // namespace
}  // namespace needle::cuda
