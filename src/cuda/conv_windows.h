// Convolutions as matrix products (gemm.h). The left operand has one row for each window, with its
// pixels; it is read from the images and never written ("implicit GEMM"). Channels are last, so k
// runs through the channels of one tap after the other, and a step of k is mostly contiguous
// memory. conv2d and its input gradient are the same product: the distance between an output pixel
// and the source pixel of a tap grows evenly from tap to tap.
#pragma once

#include "core/kernel_table.h"
#include "gemm.h"
#include "images.h"

namespace needle::cuda {
namespace {

// The tile for results of few columns, which are usual in convolutions: 64 output channels fill it.
// With doubles its sums would not fit the registers.
template <class T, Precision kPrecision>
using NarrowTile = std::conditional_t<sizeof(T) <= 4,
                                      TileFor<kPrecision, RegisterTile<128, 64, 8, 8, 4>,
                                              TensorTile<kPrecision, 128, 64, 16, 32, 32>>,
                                      SmallTile<kPrecision>>;
constexpr std::uint32_t kNarrow = 32;  // columns; up to these a small tile wastes less work

// The k of the product: taps (i, j) row by row, each with its channels. Tap (i, j) reads the source
// pixel at (i * step_y, j * step_x) from the first pixel of its window.
struct Taps {
  Divisor channels, columns;
  std::uint32_t depth;  // rows * columns * channels
  std::int32_t step_y, step_x;

  Taps(std::int64_t rows_, std::int64_t columns_, std::int64_t channels_, Pair step)
      : channels(std::max<std::int64_t>(1, channels_)),
        columns(std::max<std::int64_t>(1, columns_)),
        depth(static_cast<std::uint32_t>(rows_ * columns_ * channels_)),
        step_y(static_cast<std::int32_t>(step.h)),
        step_x(static_cast<std::int32_t>(step.w)) {}

  std::int64_t rows() const { return depth / (std::int64_t(columns.divisor) * channels.divisor); }
  struct At {
    std::int32_t i, j;
    std::uint32_t channel;
  };
  __device__ At at(std::uint32_t k) const {
    const std::uint32_t tap = channels.quotient(k), i = columns.quotient(tap);
    return {std::int32_t(i), std::int32_t(tap - i * columns.divisor), k - tap * channels.divisor};
  }
};

// The source pixel at which the window of each grid pixel begins.
struct WindowGrid {
  PixelGrid pixels;
  std::int32_t stride_y, stride_x, first_y, first_x;
};

// A position in the images; a distance from it may be inside or outside.
template <class T>
struct Place {
  const T* data;
  std::int32_t y, x;
};
struct Distance {
  std::int32_t offset, y, x;
};

template <class T>
__device__ bool is_inside(const Image<const T>& image, const Place<T>& place, const Distance& d) {
  return (std::uint32_t(place.y + d.y) < std::uint32_t(image.height)) &
         (std::uint32_t(place.x + d.x) < std::uint32_t(image.width));
}

// The elements of an image, and what windows cover beyond its edges, are 32 bits apart
// (check_near).
template <class T>
__device__ std::int32_t offset_of(const Image<const T>& image, std::int32_t y, std::int32_t x) {
  return y * std::int32_t(image.row) + x * std::int32_t(image.column);
}

template <class T>
__device__ Place<T> window_at(const Image<const T>& image, const WindowGrid& grid,
                              std::uint32_t number) {
  const Pixel pixel = grid.pixels.at(number);
  const std::int32_t y = std::int32_t(pixel.row) * grid.stride_y + grid.first_y;
  const std::int32_t x = std::int32_t(pixel.column) * grid.stride_x + grid.first_x;
  return {image.data + pixel.image * image.image + offset_of(image, y, x), y, x};
}

template <class T>
__device__ Distance distance_of(const Image<const T>& image, const Taps& taps, std::uint32_t k) {
  const Taps::At at = taps.at(k);
  const std::int32_t y = at.i * taps.step_y, x = at.j * taps.step_x;
  return {offset_of(image, y, x) + std::int32_t(at.channel * image.channel), y, x};
}

inline void check_near(const char* op, std::int64_t span) {
  if (span >= std::int64_t(1) << 31) {
    raise_error(std::string(op) +
                ": on a GPU an image with its padding, and the weights, must lie" +
                " within 2147483648 elements, got " + std::to_string(span) +
                "; cut the array or make it compact");
  }
}

// How far an axis of windows and taps reaches, in pixels.
inline std::int64_t reach(std::int64_t first, std::int64_t stride, std::int64_t windows,
                          std::int64_t step, std::int64_t taps) {
  return std::max(std::abs(first), std::abs(first + stride * (windows - 1))) +
         std::abs(step) * (taps - 1);
}

template <class T>
void check_near(const char* op, const Image<const T>& image, const WindowGrid& grid,
                const Taps& taps) {
  const std::int64_t y =
      reach(grid.first_y, grid.stride_y, grid.pixels.rows.divisor, taps.step_y, taps.rows());
  const std::int64_t x = reach(grid.first_x, grid.stride_x, grid.pixels.columns.divisor,
                               taps.step_x, taps.columns.divisor);
  check_near(op, y * std::abs(image.row) + x * std::abs(image.column) +
                     taps.channels.divisor * std::abs(image.channel));
}

// Channels lie in aligned words, also from one pixel and one group to the next.
template <class T>
bool in_words(const Image<const T>& image, std::int64_t channels) {
  const auto address = reinterpret_cast<std::uintptr_t>(image.data) / sizeof(T);
  const std::int64_t all = channels | image.column | image.row | image.image;
  return image.channel == 1 && (static_cast<std::int64_t>(address) | all) % kWord<T> == 0;
}

// The left operand: a line is a window, k runs through its taps.
template <class T>
struct Windows {
  using Line = Place<T>;
  using Depth = Distance;
  const Image<const T>& image;
  const WindowGrid& grid;
  const Taps& taps;

  // One beyond the last stands for the first: its results are not stored.
  __device__ Line line(std::uint32_t n) const {
    return window_at(image, grid, n < grid.pixels.size ? n : 0);
  }
  __device__ Depth depth(std::uint32_t k) const { return distance_of(image, taps, k); }
  __device__ bool has(const Line& line, const Depth& depth) const {
    return is_inside(image, line, depth);
  }
  __device__ const T* base(const Line& line, const Depth&) const { return line.data; }
  __device__ std::int32_t offset(const Line&, const Depth& depth) const { return depth.offset; }
  __device__ bool deep() const { return image.channel == 1; }
};

// The right operand: the weights, with `lines` columns; k runs as in the windows. kEven: all depths
// are equally far apart, `channel`, also from tap to tap.
template <class T, bool kEven>
struct Filters {
  using Line = const T*;
  using Depth = std::int32_t;
  const T* data;
  std::uint32_t lines;
  std::int64_t line_stride, row, column, channel;  // strides, in elements
  const Taps& taps;

  __device__ Line line(std::uint32_t n) const { return data + (n < lines ? n : 0) * line_stride; }
  __device__ Depth depth(std::uint32_t k) const {
    if constexpr (kEven) return std::int32_t(k * channel);
    const Taps::At at = taps.at(k);
    return std::int32_t(at.i * row + at.j * column + at.channel * channel);
  }
  __device__ bool has(Line, Depth) const { return true; }
  __device__ const T* base(Line line, Depth) const { return line; }
  __device__ std::int32_t offset(Line, Depth depth) const { return depth; }
  __device__ bool deep() const { return channel == 1; }
};

}  // namespace
}  // namespace needle::cuda
