// What the algorithms for conv2d's weight gradient share: the operands, the ranges of work, each
// with a partial result, and the sum of these. conv2d_weight_grad.cc chooses one.
#pragma once

#include "conv_taps.h"
#include "core/thread_pool.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kRangeTasks = 64;
constexpr Index kSmallestRange = 1024;       // pixels
constexpr Index kPartialElements = 1 << 22;  // of all partial results together

template <class T>
struct WeightGradient {
  Image<const T> grad, x;  // of one group
  Grid grid;
  const Tap* taps;
  Index tap_count;
  Index ranges = 0, range = 0;  // how the work is split among tasks

  Index rows() const { return tap_count * x.channels; }
};

// Splits `units` units of work into at most `tasks` ranges. A range has at least `enough` units and
// a multiple of `step`. Each range has a partial result of `elements` elements.
template <class T>
void cut(WeightGradient<T>& w, Index units, Index enough, Index elements, Index tasks = kRangeTasks,
         Index step = 1) {
  const Index most = smaller(tasks, kPartialElements / larger(1, elements));
  const Index ranges = larger(1, smaller(most, units / enough));
  w.range = round_up(larger(1, ceil_div(units, ranges)), step);
  w.ranges = larger(1, ceil_div(units, w.range));
}

// Calls f(begin, end, partial result) for each range of `units`.
template <class T, class F>
void each_range(const WeightGradient<T>& w, Index units, T* partials, Index elements, F&& f) {
  parallel_for(w.ranges, 1, [&](Index first, Index last) {
    for (Index r = first; r < last; ++r) {
      f(r * w.range, smaller(units, (r + 1) * w.range), partials + r * elements);
    }
  });
}

// The weight gradient in memory: element (tap, c, o) is at tap.weight + c * input_stride + o *
// output_stride.
template <class T>
struct WeightTarget {
  T* data;
  Index input_stride, output_stride;
};

// Adds the partial results, each of shape (rows, filled), in order, and writes the sum to `out`.
template <class T>
void add_partials(const WeightGradient<T>& w, T* partials, Index filled,
                  const WeightTarget<T>& out) {
  const Index channels = w.x.channels, size = w.rows() * filled;
  parallel_for(w.rows(), 64, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      T* target = out.data + w.taps[row / channels].weight + row % channels * out.input_stride;
      T* sums = partials + row * filled;
      for (Index r = 1; r < w.ranges; ++r) {
        for (Index o = 0; o < filled; ++o) sums[o] += sums[r * size + o];
      }
      for (Index o = 0; o < w.grad.channels; ++o) target[o * out.output_stride] = sums[o];
    }
  });
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
