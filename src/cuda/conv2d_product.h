// The product that conv2d and its input gradient compute: windows (conv_windows.h) times filters.
// The kernels of conv2d.cu and sm90/conv2d_tma.h share it.
#pragma once

#include "conv_windows.h"

namespace needle::cuda {
namespace {

template <class T>
struct WindowProduct {
  ImageView<const T> source;
  ImageView<T> out;  // its pixels are those of `windows`
  WindowGrid windows;
  Taps taps;
  const T* weight;
  std::int64_t weight_n, weight_row, weight_column, weight_channel;  // strides, in elements
  std::uint32_t n;  // columns of the product: channels of `out` in a group
  std::int64_t source_group, out_group, weight_group;  // offsets from one group to the next
  const T* bias;                                       // or null
  std::int64_t bias_step;
  Computed<T> least;  // lower bound of a result: 0 with relu, else -inf
  Divisor tiles_across;
  float* moments = nullptr;  // of the result (moments.h), written by TMA kernels; or null
};

// The result for one group. Rows are pixels, columns are the group's output channels.
template <class T>
struct PixelResult {
  using Row = ResultRow<T>;
  using V = Computed<T>;
  struct Column : ResultColumn {
    V bias;
  };
  const WindowProduct<T>& p;
  std::uint32_t group;

  __device__ Row row(std::uint32_t m) const {
    const bool valid = m < p.windows.pixels.size;
    const PixelIndex pixel = p.windows.pixels.at(valid ? m : 0);
    return {p.out.at(pixel.image, pixel.row, pixel.column) + group * p.out_group, valid};
  }
  __device__ Column column(std::uint32_t n) const {
    const bool valid = n < p.n;
    const V none = V(-0.0);  // x + -0 is x, for all x
    return {{n * p.out.channel, valid},
            valid && p.bias != nullptr ? V(p.bias[(group * p.n + n) * p.bias_step]) : none};
  }
  __device__ T stored(const Column& column, V value) const {
    value += column.bias;
    return T(value < p.least ? p.least : value);  // NaN stays
  }
  __device__ void put(const Row& row, const Column& column, V value) const {
    row.data[column.offset] = stored(column, value);
  }
};

}  // namespace
}  // namespace needle::cuda
