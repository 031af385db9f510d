// The product that conv2d's weight gradient computes: transposed windows times the output's
// gradient. The kernels of conv2d_weight_grad.cu and sm90/conv2d_weight_grad_tma.h share it.
#pragma once

#include "conv_windows.h"

namespace needle::cuda {
namespace {

// Operand A, the transposed windows: row m is a (tap, channel) pair, and K runs over the windows.
template <class T>
struct TransposedWindows {
  using MnCoord = Offset;
  using KCoord = Position<T>;
  const ImageView<const T>& image;
  const WindowGrid& grid;
  const Taps& taps;

  __device__ MnCoord mn_coord(std::uint32_t m) const {
    return tap_offset(image, taps, m < taps.k ? m : 0);  // results out of bounds are not stored
  }
  __device__ KCoord k_coord(std::uint32_t k) const { return window_position(image, grid, k); }
  __device__ bool in_bounds(const MnCoord& tap, const KCoord& window) const {
    return inside_image(image, window, tap);
  }
  __device__ const T* base(const MnCoord&, const KCoord& window) const { return window.data; }
  __device__ std::int32_t offset(const MnCoord& tap, const KCoord&) const { return tap.elements; }
  // With few channels, loads are contiguous along the pixels (K) instead.
  __device__ bool k_major() const { return taps.channels.divisor < 8; }
};

// Operand B, the output's gradient: column n is a channel, and K runs over the pixels. kUniform
// means that all pixels are `column` elements apart, also from row to row and image to image.
template <class T, bool kUniform>
struct OutputGradient {
  using MnCoord = std::int32_t;
  using KCoord = const T*;
  const ImageView<const T>& image;
  const PixelGrid& grid;
  std::uint32_t n;

  __device__ MnCoord mn_coord(std::uint32_t i) const {
    return (i < n ? i : 0) * std::int32_t(image.channel);
  }
  __device__ KCoord k_coord(std::uint32_t k) const {
    if constexpr (kUniform) return image.data + k * image.column;
    const PixelIndex pixel = grid.at(k);
    return image.data + pixel.image * image.image +
           pixel_offset(image, std::int32_t(pixel.row), std::int32_t(pixel.column));
  }
  __device__ bool in_bounds(MnCoord, KCoord) const { return true; }
  __device__ const T* base(MnCoord, KCoord pixel) const { return pixel; }
  __device__ std::int32_t offset(MnCoord channel, KCoord) const { return channel; }
  __device__ bool k_major() const { return image.channel != 1; }
};

template <class T>
struct PixelProduct {
  ImageView<const T> x, grad;
  WindowGrid windows;
  Taps taps;
  Computed<T>* out;
  std::int64_t row, column, input, output;  // strides of the result, in elements
  std::uint32_t n;                          // output channels of a group
  std::int64_t x_group, grad_group, out_group;
  std::uint32_t slice;        // pixels of a slice of K
  std::int64_t slice_stride;  // elements from the result of one slice to that of the next
  Divisor tiles_across;
};

// The result. Rows are (tap, channel) pairs, columns are output channels.
template <class T>
struct WeightResult {
  using V = Computed<T>;
  using Row = ResultRow<V>;
  using Column = ResultColumn;
  const PixelProduct<T>& p;
  V* out;

  __device__ Row row(std::uint32_t m) const {
    const bool valid = m < p.taps.k;
    const Tap tap = p.taps.tap(valid ? m : 0);
    return {out + tap.i * p.row + tap.j * p.column + tap.channel * p.input, valid};
  }
  __device__ Column column(std::uint32_t n) const { return {n * p.output, n < p.n}; }
  __device__ void put(const Row& row, const Column& column, V value) const {
    row.data[column.offset] = value;
  }
};

}  // namespace
}  // namespace needle::cuda
