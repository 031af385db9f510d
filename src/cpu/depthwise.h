// Depthwise convolution, one filter a channel: no product of matrices, so vectors of channels are
// added up tap by tap, for a few neighbouring pixels at once, whose sums stay in registers. Pixels
// whose windows reach over the edge, and channels that fill no vector, go one by one.
// conv2d.cc and conv2d_weight_grad.cc call it.
#pragma once

#include "conv_taps.h"
#include "core/thread_pool.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kChannelBlock = 64;  // accumulators of one pass, on the stack
constexpr int kPixelsAtOnce = 4;

// sums[c] += a[c] * b[c]
template <class T>
[[gnu::always_inline]] inline void multiply_add(const T* a, Index a_stride, const T* b,
                                                Index b_stride, Index n, T* sums) {
  if (a_stride == 1 && b_stride == 1) {
    for (Index c = 0; c < n; ++c) sums[c] += a[c] * b[c];
  } else {
    for (Index c = 0; c < n; ++c) sums[c] += a[c * a_stride] * b[c * b_stride];
  }
}

template <class T>
struct Depthwise {
  Image<const T> source;
  Image<T> out;  // of the grid's size
  Grid grid;
  const Tap* taps;
  Index tap_count;
  const T* weight;  // (taps, channels)
  const T* bias;    // or null
};

// Channels from `first` on of one pixel.
template <class T>
void depthwise_pixel(const Depthwise<T>& d, const Pixel& pixel, Index first) {
  T* to = d.out.at(pixel.n, pixel.i, pixel.j);
  for (; first < d.out.channels; first += kChannelBlock) {
    const Index n = smaller(kChannelBlock, d.out.channels - first);
    T sums[kChannelBlock] = {};
    for (Index c = 0; c < n && d.bias != nullptr; ++c) sums[c] = d.bias[first + c];
    for (Index t = 0; t < d.tap_count; ++t) {
      const T* from = source_of(d.source, d.grid, pixel, d.taps[t]);
      if (from == nullptr) continue;
      multiply_add(from + first * d.source.channel_stride, d.source.channel_stride,
                   d.weight + t * d.out.channels + first, 1, n, sums);
    }
    for (Index c = 0; c < n; ++c) to[(first + c) * d.out.channel_stride] = sums[c];
  }
}

// P neighbouring pixels, `step` apart in the source, one vector of channels; taps at offsets[t].
template <class T, int P>
[[gnu::always_inline]] inline void depthwise_vector(Index taps, const T* from, const Index* offsets,
                                                    Index step, const T* weight, Index channels,
                                                    const Vector<T>& bias, T* to, Index to_step) {
  Vector<T> sums[P];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) sums[p] = bias;
  for (Index t = 0; t < taps; ++t, weight += channels) {
    const Vector<T> filter = load(weight);
    const T* seen = from + offsets[t];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sums[p] += filter * load(seen + p * step);
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) store<T>(to + p * to_step, sums[p]);
}

// P pixels of a row from `first` on, which see no edge; whole vectors of channels, one after the
// other as they lie in memory.
template <class T, int P>
[[gnu::noinline]] void depthwise_pixels(const Depthwise<T>& d, const Pixel& row, Index first,
                                        const Index* offsets) {
  const Index step = d.grid.step.w * d.source.column_stride, channels = d.out.channels;
  const T* from = d.source.at(row.n, row.i * d.grid.step.h, first * d.grid.step.w);
  T* to = d.out.at(row.n, row.i, first);
  for (Index c = 0; c + Blocking<T>::W <= channels; c += Blocking<T>::W) {
    const Vector<T> bias = d.bias != nullptr ? load(d.bias + c) : Vector<T>{};
    depthwise_vector<T, P>(d.tap_count, from + c, offsets, step, d.weight + c, channels, bias,
                           to + c, d.out.column_stride);
  }
}

template <class T>
void depthwise_run(const Depthwise<T>& d, const Pixel& row, Index first, Index last,
                   const Index* offsets) {
  for (; first + kPixelsAtOnce <= last; first += kPixelsAtOnce) {
    depthwise_pixels<T, kPixelsAtOnce>(d, row, first, offsets);
  }
  for (; first < last; ++first) depthwise_pixels<T, 1>(d, row, first, offsets);
}

// The pixels [*first, *last) of a row whose taps all see the image.
template <class T>
void inner_pixels(const Depthwise<T>& d, Index row, Index* first, Index* last) {
  *first = 0, *last = d.grid.columns;
  for (Index t = 0; t < d.tap_count; ++t) {
    const Index y = row * d.grid.step.h + d.taps[t].dy, dx = d.taps[t].dx, step = d.grid.step.w;
    if (y < 0 || y >= d.source.height) *last = 0;
    *first = larger(*first, ceil_div(larger(0, -dx), step));
    *last = smaller(*last, dx < d.source.width ? ceil_div(d.source.width - dx, step) : 0);
  }
  *first = smaller(*first, d.grid.columns);
  *last = larger(*first, *last);
}

template <class T>
void depthwise_row(const Depthwise<T>& d, Pixel pixel, const Index* offsets) {
  const bool vectors = d.source.channel_stride == 1 && d.out.channel_stride == 1;
  const Index rest = vectors ? d.out.channels / Blocking<T>::W * Blocking<T>::W : 0;
  Index first = 0, last = 0;
  inner_pixels(d, pixel.i, &first, &last);
  if (rest > 0) depthwise_run(d, pixel, first, last, offsets);
  for (pixel.j = 0; pixel.j < d.grid.columns; ++pixel.j) {
    const bool inner = pixel.j >= first && pixel.j < last;
    if (!inner || rest < d.out.channels) depthwise_pixel(d, pixel, inner ? rest : 0);
  }
}

// bias: one value a channel, side by side, or null.
template <class T>
void depthwise(const Image<const T>& source, const Image<T>& out, const Grid& grid, const Tap* taps,
               Index tap_count, const View& weight, const T* bias) {
  if (grid.size() == 0) return;
  const Scratch filters(bytes_for<T>(tap_count * out.channels));
  const Scratch offsets(bytes_for<Index>(tap_count));
  for (Index t = 0; t < tap_count; ++t) {
    const T* from = data_of<const T>(weight) + taps[t].weight;
    offsets.as<Index>()[t] = taps[t].dy * source.row_stride + taps[t].dx * source.column_stride;
    for (Index c = 0; c < out.channels; ++c) {
      filters.as<T>()[t * out.channels + c] = from[c * weight.strides[3]];
    }
  }
  const Depthwise<T> d{source, out, grid, taps, tap_count, filters.as<const T>(), bias};
  parallel_for(grid.images * grid.rows, 2, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      depthwise_row(d, {row / grid.rows, row % grid.rows, 0}, offsets.as<const Index>());
    }
  });
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
