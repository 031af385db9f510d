// Loops shared by the normalisations, pooling and softmax: vectorised sums along a run of memory,
// and a walk over the leading dimensions of several views at once.
#pragma once

#include <cstdint>

#include "core/simd.h"
#include "core/view.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

using Index = std::int64_t;

// An accumulator of the elements' own type sums this many of them. These sums are added in double.
constexpr Index kShortSum = 64;

// A run of memory. get() returns element i or, if V is a vector (stride 1), the elements from i on.
template <class T>
struct Run {
  const T* data;
  Index stride;

  template <class V>
  [[gnu::always_inline]] V get(Index i) const {
    if constexpr (sizeof(V) == sizeof(T)) {
      return data[i * stride];
    } else {
      return simd::load(data + i);
    }
  }
};

// Adds `Count` sums over i in [0, n) to `totals`. term(V{}, i, sums) adds the contribution of
// element i or, if V is a vector, of the elements from i on.
template <class T, int Count, class Term>
[[gnu::always_inline]] inline void sum_terms(Index n, bool contiguous, double (&totals)[Count],
                                             Term term) {
  using V = simd::Vector<T>;
  constexpr Index W = simd::kLanes<T>;
  const Index block = contiguous ? 2 * W * kShortSum : kShortSum;
  for (Index begin = 0; begin < n; begin += block) {
    const Index end = n - begin < block ? n : begin + block;
    Index i = begin;
    T rest[Count] = {};
    if (contiguous) {
      V a[Count] = {}, b[Count] = {};
      for (; i + 2 * W <= end; i += 2 * W) {
        term(V{}, i, a);
        term(V{}, i + W, b);
      }
      for (int k = 0; k < Count; ++k) {
        const V both = a[k] + b[k];
        for (Index lane = 0; lane < W; ++lane) rest[k] += both[lane];
      }
    }
    for (; i < end; ++i) term(T{}, i, rest);
    for (int k = 0; k < Count; ++k) totals[k] += double(rest[k]);
  }
}

// The mean of a run and its sum of squared deviations. moments_of() computes them about a first
// mean, to avoid cancellation.
struct Moments {
  double n = 0, mean = 0, squares = 0;

  double variance() const { return n > 0 ? squares / n : 0.0; }
};

template <class T>
Moments moments_of(const Run<T>& x, Index n) {
  if (n == 0) return {};
  double sum[1] = {};
  sum_terms<T>(n, x.stride == 1, sum,
               [&x](auto v, Index i, auto* sums) { sums[0] += x.template get<decltype(v)>(i); });
  const T shift = T(sum[0] / double(n));
  double sums[2] = {};
  sum_terms<T>(n, x.stride == 1, sums, [&x, shift](auto v, Index i, auto* s) {
    const auto d = x.template get<decltype(v)>(i) - shift;
    s[0] += d;
    s[1] += d * d;
  });
  const double squares = sums[1] - sums[0] * sums[0] / double(n);
  return {double(n), double(shift) + sums[0] / double(n), squares < 0 ? 0.0 : squares};
}

// The first `ndim` dimensions of up to five views, merged where all strides allow it.
struct Leading {
  int views = 0, ndim = 0;
  Index size = 1;
  Index shape[kMaxDims] = {};
  Index strides[5][kMaxDims] = {};

  // Computes the offsets (in elements) of position `index`, row-major.
  void locate(Index index, Index* position, Index* offsets) const {
    for (int v = 0; v < views; ++v) offsets[v] = 0;
    for (int axis = ndim - 1; axis >= 0; --axis) {
      position[axis] = index % shape[axis];
      index /= shape[axis];
      for (int v = 0; v < views; ++v) offsets[v] += position[axis] * strides[v][axis];
    }
  }

  void next(Index* position, Index* offsets) const {
    for (int axis = ndim - 1; axis >= 0; --axis) {
      for (int v = 0; v < views; ++v) offsets[v] += strides[v][axis];
      if (++position[axis] < shape[axis]) return;
      for (int v = 0; v < views; ++v) offsets[v] -= shape[axis] * strides[v][axis];
      position[axis] = 0;
    }
  }

  // Calls f(position, offsets) for positions [begin, end).
  template <class F>
  [[gnu::always_inline]] void each(Index begin, Index end, F&& f) const {
    if (begin >= end) return;
    Index indices[kMaxDims], offsets[5];
    locate(begin, indices, offsets);
    for (Index position = begin; position < end; ++position) {
      f(position, static_cast<const Index*>(offsets));
      next(indices, offsets);
    }
  }
};

// Returns dimensions [0, ndim) of the views without dimension `skip` (if it is >= 0).
[[maybe_unused]] Leading leading_dims(int ndim, int skip, const View* const* views, int count) {
  Leading lead;
  lead.views = count;
  for (int axis = 0; axis < ndim; ++axis) {
    const Index size = views[0]->shape[axis];
    if (axis == skip) continue;
    lead.size *= size;
    if (size == 1) continue;
    bool merges = lead.ndim > 0;
    for (int v = 0; v < count && merges; ++v) {
      merges = lead.strides[v][lead.ndim - 1] == views[v]->strides[axis] * size;
    }
    const int to = merges ? lead.ndim - 1 : lead.ndim++;
    lead.shape[to] = merges ? lead.shape[to] * size : size;
    for (int v = 0; v < count; ++v) lead.strides[v][to] = views[v]->strides[axis];
  }
  return lead;
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
