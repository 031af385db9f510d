// Images (N, H, W, C) with any strides, in the form that kernels take, and loops over their pixels.
// Pooling and the convolutions use them.
#pragma once

#include <algorithm>
#include <limits>

#include "walk.h"

namespace needle::cuda {
namespace {

template <class T>
struct ImageView {
  T* data;
  std::int64_t image, row, column, channel;  // strides, in elements
  std::int32_t height, width;

  __device__ T* at(std::int64_t n, std::int64_t y, std::int64_t x) const {
    return data + n * image + y * row + x * column;
  }
  // Returns a view of the images from n on.
  ImageView from(std::int64_t n) const {
    return {data + n * image, image, row, column, channel, height, width};
  }
};

// Returns a view of the images from `first` on.
template <class T>
ImageView<T> image_of(const View& v, std::int64_t first = 0) {
  return {data_of<T>(v) + first * v.strides[0],
          v.strides[0],
          v.strides[1],
          v.strides[2],
          v.strides[3],
          static_cast<std::int32_t>(v.shape[1]),
          static_cast<std::int32_t>(v.shape[2])};
}

// The lower bound of a convolution's results without ReLU.
template <class T>
inline constexpr T kNoFloor = -std::numeric_limits<T>::infinity();

struct PixelIndex {
  std::uint32_t image, row, column;
};

// All pixels of images, in row-major order.
struct PixelGrid {
  Divisor rows, columns;
  std::uint32_t size = 0;

  PixelGrid() = default;
  PixelGrid(const char* op, std::int64_t images, std::int64_t height, std::int64_t width)
      : rows(std::max<std::int64_t>(1, height)), columns(std::max<std::int64_t>(1, width)) {
    check_count(op, images * height * width);
    size = static_cast<std::uint32_t>(images * height * width);
  }
  __device__ PixelIndex at(std::uint32_t number) const {
    const std::uint32_t row = columns.quotient(number), image = rows.quotient(row);
    return {image, row - image * rows.divisor, number - row * columns.divisor};
  }
};

// The elements of images, one per thread, channels before pixels, so that the loads of a warp
// coalesce in channels-last layouts.
struct ElementGrid {
  PixelGrid pixels;
  Divisor channels;
  std::uint32_t size;
};

constexpr unsigned kImageThreads = 256;

// Divides the images into groups that one launch can process, and calls f(grid, first image) for
// each.
template <class F>
void each_element_grid(const char* op, const View& v, F&& f) {
  const std::int64_t elements = v.shape[1] * v.shape[2] * v.shape[3];
  if (elements == 0) return;
  check_count(op, elements);
  const std::int64_t most = std::max<std::int64_t>(1, kPart / elements);
  for (std::int64_t first = 0; first < v.shape[0]; first += most) {
    const std::int64_t count = std::min(most, v.shape[0] - first);
    f(ElementGrid{PixelGrid(op, count, v.shape[1], v.shape[2]), Divisor(v.shape[3]),
                  static_cast<std::uint32_t>(count * elements)},
      first);
  }
}

// Calls f(pixel, channel) for the thread's element, unless it is out of bounds.
template <class F>
__device__ void at_element(const ElementGrid& grid, F&& f) {
  const std::uint32_t number = blockIdx.x * kImageThreads + threadIdx.x;
  if (number >= grid.size) return;
  const std::uint32_t pixel = grid.channels.quotient(number);
  f(grid.pixels.at(pixel), number - pixel * grid.channels.divisor);
}

}  // namespace
}  // namespace needle::cuda
