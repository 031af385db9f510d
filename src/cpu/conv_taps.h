// Trail 16 of 30: pixels and taps: one geometry for the convolution and its gradients.
// Next: src/cpu/conv_rows.h

// The geometry of conv2d and its gradients. All three work on a grid of pixels (n, i, j) and a list
// of taps: pixel (n, i, j) reads the source pixel (n, i * step.h + tap.dy, j * step.w + tap.dx), or
// zeros if that is outside. Images are (N, H, W, C) with any strides.
#pragma once

#include <limits>

#include "core/kernel_table.h"
#include "core/scratch.h"
#include "gemm_pack.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

template <class T>
struct Image {
  T* data;
  Index images, height, width, channels;
  Index image_stride, row_stride, column_stride, channel_stride;

  T* at(Index n, Index y, Index x) const {
    return data + n * image_stride + y * row_stride + x * column_stride;
  }
  // Returns channels [first, first + count).
  Image group(Index first, Index count) const {
    Image part = *this;
    part.data += first * channel_stride;
    part.channels = count;
    return part;
  }
};

template <class T>
Image<T> image_of(const View& v) {
  return {data_of<T>(v), v.shape[0],   v.shape[1],   v.shape[2],  v.shape[3],
          v.strides[0],  v.strides[1], v.strides[2], v.strides[3]};
}

// Returns the end of the image in memory, or its first element if a stride is negative.
template <class T>
T* end_of(const Image<T>& image) {
  if (smaller(smaller(image.image_stride, image.row_stride),
              smaller(image.column_stride, image.channel_stride)) < 0) {
    return image.data;
  }
  return image.at(image.images - 1, image.height - 1, image.width - 1) +
         (image.channels - 1) * image.channel_stride + 1;
}

struct Tap {
  Index dy, dx;
  Index weight;   // offset of this tap's (input, output) matrix in the weights
  Index run = 1;  // this and the next run - 1 taps read adjacent pixels of an image row
};

struct Grid {
  Index images, rows, columns;
  Pair step;

  Index size() const { return images * rows * columns; }
};

struct Pixel {
  Index n, i, j;
};

[[maybe_unused]] Pixel pixel_at(const Grid& grid, Index index) {
  const Index row = index / grid.columns;
  return {row / grid.rows, row % grid.rows, index % grid.columns};
}

[[maybe_unused]] void advance(const Grid& grid, Pixel& pixel) {
  if (++pixel.j < grid.columns) return;
  pixel.j = 0;
  if (++pixel.i < grid.rows) return;
  pixel.i = 0;
  ++pixel.n;
}

// Returns the channels that `pixel` reads through `tap`, or null outside of the image.
template <class T>
const T* source_of(const Image<const T>& image, const Grid& grid, const Pixel& pixel,
                   const Tap& tap) {
  const Index y = pixel.i * grid.step.h + tap.dy, x = pixel.j * grid.step.w + tap.dx;
  if (y < 0 || y >= image.height || x < 0 || x >= image.width) return nullptr;
  return image.at(pixel.n, y, x);
}

// Copies channels [first, last) of a source pixel; writes zeros if `source` is null.
template <class T>
[[gnu::always_inline]] inline void copy_channels(const T* source, Index stride, Index first,
                                                 Index last, T* to) {
  if (source == nullptr) {
    for (Index c = first; c < last; ++c) *to++ = T(0);
  } else {
    for (Index c = first; c < last; ++c) *to++ = source[c * stride];
  }
}

// Copies the adjacent pixels that `tap` and the next tap.run - 1 taps read. The pixels of an image
// row must be contiguous.
template <class T>
[[gnu::always_inline]] inline void copy_neighbours(const Image<const T>& image, const Grid& grid,
                                                   const Pixel& pixel, const Tap& tap, T* to) {
  const Index y = pixel.i * grid.step.h + tap.dy, x = pixel.j * grid.step.w + tap.dx;
  const bool inside = y >= 0 && y < image.height;
  const Index left = inside ? smaller(larger(-x, 0), tap.run) : tap.run;  // taps before the image
  const Index right = inside ? larger(smaller(image.width - x, tap.run), left) : tap.run;
  const Index channels = image.channels;
  for (Index e = 0; e < left * channels; ++e) to[e] = T(0);
  if (left < right) {
    const T* from = image.at(pixel.n, y, x + left);
    to += left * channels;
    for (Index e = 0; e < (right - left) * channels; ++e) *to++ = from[e];
    for (Index e = 0; e < (tap.run - right) * channels; ++e) *to++ = T(0);
  } else {
    for (Index e = left * channels; e < tap.run * channels; ++e) to[e] = T(0);
  }
}

// Returns true if the pixels of an image row are contiguous.
template <class T>
bool is_dense(const Image<T>& image) {
  return image.column_stride == image.channels &&
         (image.channels == 1 || image.channel_stride == 1);
}

// Copies elements [first, last) of a pixel's patch, which has the channels of one tap after the
// other.
template <class T>
void copy_patch(const Image<const T>& image, const Grid& grid, const Pixel& pixel, const Tap* taps,
                Index first, Index last, T* to) {
  if (first >= last) return;
  const Index channels = image.channels;
  const bool dense = is_dense(image);
  for (Index t = first / channels, element = first; element < last;) {
    const Tap& tap = taps[t];
    if (dense && element == t * channels && element + tap.run * channels <= last) {
      copy_neighbours(image, grid, pixel, tap, to);
      to += tap.run * channels;
      element += tap.run * channels;
      t += tap.run;
      continue;
    }
    const Index end = smaller((t + 1) * channels, last);
    copy_channels(source_of(image, grid, pixel, tap), image.channel_stride, element - t * channels,
                  end - t * channels, to);
    to += end - element;
    element = end;
    ++t;
  }
}

// The cost of an algorithm that cannot be used.
constexpr double kNever = 1e300;

// The lower bound of results without ReLU.
template <class T>
constexpr T no_floor() {
  return -std::numeric_limits<T>::infinity();
}

// A product: out[pixel] is the sum over taps and channels of source * weight, plus the bias,
// clamped to at least `least`.
template <class T>
struct TapProduct {
  Image<const T> source;
  Image<T> out;  // of the grid's size
  Grid grid;
  const Tap* taps;
  Index tap_count;
  const T* weight;  // element (c, o) of a tap at tap.weight + c * input_stride + o * output_stride
  Index input_stride, output_stride;
  const T* bias = nullptr;  // one value per output channel, contiguous; null for none
  T least = no_floor<T>();
  const T* prepared = nullptr;  // the weights in the algorithm's order, if they were prepared

  Index depth() const { return tap_count * source.channels; }
  bool has_floor() const { return least > no_floor<T>(); }
  // Writes the biases, followed by zeros up to `filled`.
  void copy_bias(Index filled, T* to) const {
    for (Index o = 0; o < filled; ++o) to[o] = bias != nullptr && o < out.channels ? bias[o] : T(0);
  }
};

// Writes the taps of a kernel relative to an output pixel; returns their number.
[[maybe_unused]] Index forward_taps(const View& weight, const Geometry& geometry, Tap* taps) {
  Index count = 0;
  for (Index i = 0; i < weight.shape[0]; ++i) {
    for (Index j = 0; j < weight.shape[1]; ++j) {
      taps[count++] = {i * geometry.dilation.h - geometry.padding.h,
                       j * geometry.dilation.w - geometry.padding.w,
                       i * weight.strides[0] + j * weight.strides[1],
                       geometry.dilation.w == 1 ? weight.shape[1] - j : 1};
    }
  }
  return count;
}

// Measured costs of copying a patch, per run and per element. The unit of costs is a multiply-add
// at full speed; conv2d compares algorithms by them.
constexpr double kPatchRunCost = 200, kPatchElementCost = 24;

template <class T>
double patch_cost(const Image<const T>& image, const Tap* taps, Index count) {
  Index runs = 0;
  for (Index t = 0; t < count; t += is_dense(image) ? taps[t].run : 1) ++runs;
  return kPatchRunCost * double(runs) + kPatchElementCost * double(count * image.channels);
}

// Returns the image as a read-only one.
template <class T>
Image<const T> readable(const Image<T>& i) {
  return {i.data,         i.images,     i.height,        i.width,         i.channels,
          i.image_stride, i.row_stride, i.column_stride, i.channel_stride};
}

template <class T>
void clear(T* to, Index n) {
  for (Index e = 0; e < n; ++e) to[e] = T(0);
}

// Returns the size in bytes of `n` elements, at least that of one.
template <class T>
std::size_t bytes_for(Index n) {
  return static_cast<std::size_t>(larger(n, 1)) * sizeof(T);
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
