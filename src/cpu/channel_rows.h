// Rows of channels in memory (NHWC), as batch norm sums and transforms them. Contiguous rows are
// joined into wide rows, which fill vectors even with few channels. Loops go over columns, several
// rows at a time, while sums and constants stay in L1.
#pragma once

#include <cstring>
#include <type_traits>

#include "runs.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kWide = 64;   // a wide row has at least this many columns,
constexpr Index kEven = 16;   // a multiple of this if possible,
constexpr Index kMany = 256;  // but rows of this many channels are not joined

using simd::get;
using simd::put;

// Calls f(V{}, column) for each vector of columns and each remaining single column.
template <class T, class F>
[[gnu::always_inline]] inline void each_column(Index width, F&& f) {
  Index c = 0;
  for (; c + simd::kLanes<T> <= width; c += simd::kLanes<T>) f(simd::Vector<T>{}, c);
  for (; c < width; ++c) f(T{}, c);
}

// Calls f(constant kCount, row) for kCount rows at once, then f(constant 1, row) for each remaining
// row.
template <int kCount, class F>
[[gnu::always_inline]] inline void each_group(Index rows, F&& f) {
  Index r = 0;
  for (; r + kCount <= rows; r += kCount) f(std::integral_constant<int, kCount>{}, r);
  for (; r < rows; ++r) f(std::integral_constant<int, 1>{}, r);
}

// Rows of `channels` adjacent elements along the leading dimensions of up to four views.
struct ChannelRows {
  Leading leading;             // all dimensions but the channels
  Index channels, merged = 1;  // rows in a wide row

  ChannelRows(const View* const* views, int count)
      : leading(leading_dims(views[0]->ndim - 1, -1, views, count)),
        channels(views[0]->shape[views[0]->ndim - 1]) {
    bool dense = leading.ndim <= 1;
    for (int v = 0; v < leading.views && leading.ndim == 1; ++v) {
      dense = dense && leading.strides[v][0] == channels;
    }
    if (!dense || leading.size == 0 || channels >= kMany) return;
    while (width() < kWide || (width() % kEven != 0 && merged % kEven != 0)) ++merged;
  }

  Index width() const { return merged * channels; }
  Index count() const { return (leading.size + merged - 1) / merged; }  // the last may be shorter
  Index pixels(Index begin, Index end) const {  // rows of channels in wide rows [begin, end)
    const Index last = end * merged < leading.size ? end * merged : leading.size;
    return last - begin * merged;
  }

  // Divides wide rows [begin, end) into stretches with constant strides and calls f(offsets,
  // strides, rows, width) for each. `offsets` and `strides` have one entry per view.
  template <class F>
  [[gnu::always_inline]] void each(Index begin, Index end, F&& f) const {
    Index offsets[4] = {}, strides[4] = {};
    if (merged > 1 || leading.ndim == 0) {
      const Index whole = pixels(begin, end) / merged, rest = pixels(begin, end) % merged;
      for (int v = 0; v < leading.views; ++v) {
        offsets[v] = begin * width();
        strides[v] = width();
      }
      if (whole > 0) f(offsets, strides, whole, width());
      for (int v = 0; v < leading.views; ++v) offsets[v] += whole * width();
      if (rest > 0) f(offsets, strides, Index(1), rest * channels);
      return;
    }
    const int last = leading.ndim - 1;
    for (int v = 0; v < leading.views; ++v) strides[v] = leading.strides[v][last];
    while (begin < end) {
      Index position[kMaxDims];
      leading.locate(begin, position, offsets);
      const Index rest = leading.shape[last] - position[last];
      const Index rows = rest < end - begin ? rest : end - begin;
      f(offsets, strides, rows, channels);
      begin += rows;
    }
  }

  // Repeats the values of the channels, so that `values` has width() columns.
  template <class T>
  void repeat(T* values) const {
    for (Index c = channels; c < width(); ++c) values[c] = values[c - channels];
  }
  // Adds the sums of a wide row's columns to the sums of their channels.
  void fold(double* sums) const {
    for (Index c = channels; c < width(); ++c) sums[c % channels] += sums[c];
  }
};

// Two sums per column: in float over a few hundred rows, then in double.
template <class T>
struct ColumnSums {
  static constexpr int kTogether = 4;  // rows
  static constexpr Index kFlush = 64 * kTogether;
  T *first, *second;
  double *firsts, *seconds;  // the totals
  Index width, pending = 0;

  static std::size_t bytes(Index width) {
    return static_cast<std::size_t>(2 * width) * (sizeof(double) + sizeof(T));
  }
  ColumnSums(void* memory, Index columns) : firsts(static_cast<double*>(memory)), width(columns) {
    seconds = firsts + width;
    first = reinterpret_cast<T*>(seconds + width);
    second = first + width;
    for (Index c = 0; c < width; ++c) {
      first[c] = second[c] = T(0);
      firsts[c] = seconds[c] = 0.0;
    }
  }

  // Adds rows that start at `offsets`, `strides` apart in each view. term(V{}, at, column, a, b)
  // sets a and b to what an element or a vector contributes to the two sums. at[v] is the position
  // of the first element of its row in view v.
  template <class Term>
  [[gnu::always_inline]] void add(const Index* offsets, const Index* strides, Index rows,
                                  Index columns, Term&& term) {
    each_group<kTogether>(rows, [&](auto group, Index row) {
      constexpr int kRows = decltype(group)::value;
      const auto local = term;  // a copy that stores cannot alias stays in registers
      T *const to_first = first, *const to_second = second;
      Index row_offsets[kRows][4];
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < 4; ++v) row_offsets[r][v] = offsets[v] + (row + r) * strides[v];
      }
      each_column<T>(columns, [&]<class V>(V, Index c) {
        V a[kRows], b[kRows];
        for (int r = 0; r < kRows; ++r) {
          local(V{}, static_cast<const Index*>(row_offsets[r]), c, a[r], b[r]);
        }
        V a_sum = a[0], b_sum = b[0];
        if constexpr (kRows == 4) {
          a_sum = (a[0] + a[1]) + (a[2] + a[3]);
          b_sum = (b[0] + b[1]) + (b[2] + b[3]);
        }
        put(to_first + c, get<V>(to_first + c) + a_sum);
        put(to_second + c, get<V>(to_second + c) + b_sum);
      });
      if ((pending += kRows) >= kFlush) flush();
    });
  }

  void flush() {
    for (Index c = 0; c < width; ++c) {
      firsts[c] += double(first[c]);
      seconds[c] += double(second[c]);
      first[c] = second[c] = T(0);
    }
    pending = 0;
  }
};

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
