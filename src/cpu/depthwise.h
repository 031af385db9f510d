// Depthwise convolution, one filter a channel: no product of matrices, so a loop over pixels and
// taps that adds vectors of channels. conv2d.cc and conv2d_weight_grad.cc call it.
#pragma once

#include "conv_taps.h"
#include "core/thread_pool.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kChannelBlock = 64;  // accumulators of one pass, on the stack
constexpr Index kPixelGrain = 64;

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
void depthwise_pixel(const Image<const T>& source, const Image<T>& out, const Grid& grid,
                     const Pixel& pixel, const Tap* taps, Index tap_count, const View& weight) {
  T* to = out.at(pixel.n, pixel.i, pixel.j);
  for (Index first = 0; first < out.channels; first += kChannelBlock) {
    const Index n = smaller(kChannelBlock, out.channels - first);
    T sums[kChannelBlock] = {};
    for (Index t = 0; t < tap_count; ++t) {
      const T* from = source_of(source, grid, pixel, taps[t]);
      if (from == nullptr) continue;
      multiply_add(from + first * source.channel_stride, source.channel_stride,
                   data_of<const T>(weight) + taps[t].weight + first * weight.strides[3],
                   weight.strides[3], n, sums);
    }
    for (Index c = 0; c < n; ++c) to[(first + c) * out.channel_stride] = sums[c];
  }
}

template <class T>
void depthwise(const Image<const T>& source, const Image<T>& out, const Grid& grid, const Tap* taps,
               Index tap_count, const View& weight) {
  if (grid.size() == 0) return;
  parallel_for(grid.size(), kPixelGrain, [&](Index begin, Index end) {
    Pixel pixel = pixel_at(grid, begin);
    for (Index at = begin; at < end; ++at) {
      depthwise_pixel(source, out, grid, pixel, taps, tap_count, weight);
      advance(grid, pixel);
    }
  });
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
