// Convolutions as matrix products (gemm.h) by implicit GEMM. Each row of A is a window, which is
// read from the images; A itself is never written. Channels are last, so K runs through the
// channels of one tap after the other, and a step along K is mostly contiguous in memory. conv2d
// and its input gradient are the same product: in both, the offset from an output pixel to the
// source pixel of a tap grows by a constant from tap to tap.
#pragma once

#include "core/kernel_table.h"
#include "gemm.h"
#include "images.h"

namespace needle::cuda {
namespace {

// The tile for results with few columns, which are common in convolutions; it has 64 columns. With
// doubles, its accumulators would not fit the registers.
template <class T, Precision kPrecision>
using NarrowTile = std::conditional_t<sizeof(T) <= 4,
                                      TileFor<kPrecision, RegisterTile<128, 64, 8, 8, 4>,
                                              TensorTile<kPrecision, 128, 64, 16, 32, 32>>,
                                      SmallTile<kPrecision>>;
constexpr std::uint32_t kNarrow = 32;  // columns; up to these a small tile wastes less work

struct Tap {
  std::int32_t i, j;
  std::uint32_t channel;
};

// The K axis of the product: taps (i, j) row by row, each with its channels. Tap (i, j) reads the
// source pixel at (i * step_y, j * step_x) from the first pixel of its window.
struct Taps {
  Divisor channels, columns;
  std::uint32_t k;  // rows * columns * channels
  std::int32_t step_y, step_x;

  Taps(std::int64_t rows_, std::int64_t columns_, std::int64_t channels_, Pair step)
      : channels(std::max<std::int64_t>(1, channels_)),
        columns(std::max<std::int64_t>(1, columns_)),
        k(static_cast<std::uint32_t>(rows_ * columns_ * channels_)),
        step_y(static_cast<std::int32_t>(step.h)),
        step_x(static_cast<std::int32_t>(step.w)) {}

  std::int64_t rows() const { return k / (std::int64_t(columns.divisor) * channels.divisor); }
  __device__ Tap tap(std::uint32_t index) const {
    const std::uint32_t tap = channels.quotient(index), i = columns.quotient(tap);
    return {std::int32_t(i), std::int32_t(tap - i * columns.divisor),
            index - tap * channels.divisor};
  }
};

// Where the window of each output pixel begins in the source.
struct WindowGrid {
  PixelGrid pixels;
  std::int32_t stride_y, stride_x, first_y, first_x;
};

// A position in an image, which may be out of bounds, or an offset.
template <class T>
struct Position {
  const T* data;
  std::int32_t y, x;
};
struct Offset {
  std::int32_t elements, y, x;
};

template <class T>
__device__ bool inside_image(const ImageView<const T>& image, const Position<T>& position,
                             const Offset& offset) {
  return (std::uint32_t(position.y + offset.y) < std::uint32_t(image.height)) &
         (std::uint32_t(position.x + offset.x) < std::uint32_t(image.width));
}

// check_offsets guarantees that offsets within an image and its padding fit 32 bits.
template <class T>
__device__ std::int32_t pixel_offset(const ImageView<const T>& image, std::int32_t y,
                                     std::int32_t x) {
  return y * std::int32_t(image.row) + x * std::int32_t(image.column);
}

template <class T>
__device__ Position<T> window_position(const ImageView<const T>& image, const WindowGrid& grid,
                                       std::uint32_t index) {
  const PixelIndex pixel = grid.pixels.at(index);
  const std::int32_t y = std::int32_t(pixel.row) * grid.stride_y + grid.first_y;
  const std::int32_t x = std::int32_t(pixel.column) * grid.stride_x + grid.first_x;
  return {image.data + pixel.image * image.image + pixel_offset(image, y, x), y, x};
}

template <class T>
__device__ Offset tap_offset(const ImageView<const T>& image, const Taps& taps, std::uint32_t k) {
  const Tap tap = taps.tap(k);
  const std::int32_t y = tap.i * taps.step_y, x = tap.j * taps.step_x;
  return {pixel_offset(image, y, x) + std::int32_t(tap.channel * image.channel), y, x};
}

inline void check_offsets(const char* op, std::int64_t span) {
  if (span >= std::int64_t(1) << 31) {
    raise_error(std::string(op) +
                ": on a GPU an image with its padding, and the weights, must lie" +
                " within 2147483648 elements, got " + std::to_string(span) +
                "; cut the array or make it compact");
  }
}

// Returns how far the windows and taps reach along one axis, in pixels.
inline std::int64_t reach(std::int64_t first, std::int64_t stride, std::int64_t windows,
                          std::int64_t step, std::int64_t taps) {
  return std::max(std::abs(first), std::abs(first + stride * (windows - 1))) +
         std::abs(step) * (taps - 1);
}

template <class T>
void check_offsets(const char* op, const ImageView<const T>& image, const WindowGrid& grid,
                   const Taps& taps) {
  const std::int64_t y =
      reach(grid.first_y, grid.stride_y, grid.pixels.rows.divisor, taps.step_y, taps.rows());
  const std::int64_t x = reach(grid.first_x, grid.stride_x, grid.pixels.columns.divisor,
                               taps.step_x, taps.columns.divisor);
  check_offsets(op, y * std::abs(image.row) + x * std::abs(image.column) +
                        taps.channels.divisor * std::abs(image.channel));
}

// Returns true if channels can be loaded as aligned 16-byte vectors in every pixel and every group.
template <class T>
bool vectorizable(const ImageView<const T>& image, std::int64_t channels) {
  const auto address = reinterpret_cast<std::uintptr_t>(image.data) / sizeof(T);
  const std::int64_t all = channels | image.column | image.row | image.image;
  return image.channel == 1 && (static_cast<std::int64_t>(address) | all) % kVectorElements<T> == 0;
}

// Operand A, the windows: row m is the window of one output pixel, and K runs over its taps.
template <class T>
struct Windows {
  using MnCoord = Position<T>;
  using KCoord = Offset;
  const ImageView<const T>& image;
  const WindowGrid& grid;
  const Taps& taps;

  // A row that is out of bounds reads the first window; its results are not stored.
  __device__ MnCoord mn_coord(std::uint32_t m) const {
    return window_position(image, grid, m < grid.pixels.size ? m : 0);
  }
  __device__ KCoord k_coord(std::uint32_t k) const { return tap_offset(image, taps, k); }
  __device__ bool in_bounds(const MnCoord& window, const KCoord& tap) const {
    return inside_image(image, window, tap);
  }
  __device__ const T* base(const MnCoord& window, const KCoord&) const { return window.data; }
  __device__ std::int32_t offset(const MnCoord&, const KCoord& tap) const { return tap.elements; }
  __device__ bool k_major() const { return image.channel == 1; }
};

// Operand B, the weights. kUniform means that elements are `channel` apart everywhere along K, also
// from tap to tap. This saves the division.
template <class T, bool kUniform>
struct Filters {
  using MnCoord = const T*;
  using KCoord = std::int32_t;
  const T* data;
  std::uint32_t n;
  std::int64_t n_stride, row, column, channel;  // strides, in elements
  const Taps& taps;

  __device__ MnCoord mn_coord(std::uint32_t i) const { return data + (i < n ? i : 0) * n_stride; }
  __device__ KCoord k_coord(std::uint32_t k) const {
    if constexpr (kUniform) return std::int32_t(k * channel);
    const Tap tap = taps.tap(k);
    return std::int32_t(tap.i * row + tap.j * column + tap.channel * channel);
  }
  __device__ bool in_bounds(MnCoord, KCoord) const { return true; }
  __device__ const T* base(MnCoord filter, KCoord) const { return filter; }
  __device__ std::int32_t offset(MnCoord, KCoord tap) const { return tap; }
  __device__ bool k_major() const { return channel == 1; }
};

}  // namespace
}  // namespace needle::cuda
