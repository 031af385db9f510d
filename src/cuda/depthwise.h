// Depthwise convolutions, in which every group has one input channel. Channels are independent, so
// there is no matrix product, and memory bandwidth is the limit. A thread computes one element from
// its window; adjacent threads have adjacent channels. The weight gradient is a sum over pixels for
// each tap and channel (channel_rows.h).
#pragma once

#include "allocator.h"
#include "channel_rows.h"
#include "images.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

inline bool is_depthwise(In weight, std::int64_t groups) {
  return groups > 1 && weight.shape[2] == 1;
}

template <class T>
struct Depthwise {
  ImageView<const T> source;
  ImageView<T> out;
  const T* weight;
  std::int64_t weight_row, weight_column, weight_channel;  // strides, in elements
  const T* bias;                                           // or null
  std::int64_t bias_step;
  Computed<T> least;           // of a result
  std::int32_t rows, columns;  // of the kernel
  Divisor multiplier;          // output channels of a group
  Divisor stride_y, stride_x;
  std::int32_t padding_y, padding_x, dilation_y, dilation_x;

  __device__ bool inside(std::int32_t y, std::int32_t x) const {
    return std::uint32_t(y) < std::uint32_t(source.height) &&
           std::uint32_t(x) < std::uint32_t(source.width);
  }
};

template <class T>
Depthwise<T> depthwise_of(In source, In weight, Out out, const Geometry& geometry) {
  Depthwise<T> d{};
  d.source = image_of<const T>(source);
  d.out = image_of<T>(out);
  d.weight = data_of<const T>(weight);
  d.weight_row = weight.strides[0], d.weight_column = weight.strides[1];
  d.weight_channel = weight.strides[3];
  d.rows = static_cast<std::int32_t>(weight.shape[0]);
  d.columns = static_cast<std::int32_t>(weight.shape[1]);
  d.multiplier = Divisor(std::max<std::int64_t>(1, weight.shape[3] / geometry.groups));
  d.stride_y = Divisor(geometry.stride.h), d.stride_x = Divisor(geometry.stride.w);
  d.padding_y = static_cast<std::int32_t>(geometry.padding.h);
  d.padding_x = static_cast<std::int32_t>(geometry.padding.w);
  d.dilation_y = static_cast<std::int32_t>(geometry.dilation.h);
  d.dilation_x = static_cast<std::int32_t>(geometry.dilation.w);
  return d;
}

template <class T>
__global__ void __launch_bounds__(kImageThreads)
    depthwise_kernel(const __grid_constant__ Depthwise<T> d,
                     const __grid_constant__ ElementGrid grid) {
  at_element(grid, [&](const PixelIndex& pixel, std::uint32_t channel) {
    const std::int32_t y = std::int32_t(pixel.row * d.stride_y.divisor) - d.padding_y;
    const std::int32_t x = std::int32_t(pixel.column * d.stride_x.divisor) - d.padding_x;
    const T* source =
        d.source.at(pixel.image, y, x) + d.multiplier.quotient(channel) * d.source.channel;
    const T* weight = d.weight + channel * d.weight_channel;
    Computed<T> sum = 0;
    for (std::int32_t i = 0; i < d.rows; ++i) {
      for (std::int32_t j = 0; j < d.columns; ++j) {
        const std::int32_t down = i * d.dilation_y, across = j * d.dilation_x;
        if (!d.inside(y + down, x + across)) continue;
        sum += source[down * d.source.row + across * d.source.column] *
               weight[i * d.weight_row + j * d.weight_column];
      }
    }
    if (d.bias != nullptr) sum += d.bias[channel * d.bias_step];
    if (sum < d.least) sum = d.least;  // NaN stays
    d.out.at(pixel.image, pixel.row, pixel.column)[channel * d.out.channel] = T(sum);
  });
}

// `source` is the output's gradient and `out` is x_grad.
template <class T>
__global__ void __launch_bounds__(kImageThreads)
    depthwise_input_grad_kernel(const __grid_constant__ Depthwise<T> d,
                                const __grid_constant__ ElementGrid grid) {
  at_element(grid, [&](const PixelIndex& pixel, std::uint32_t channel) {
    const std::uint32_t many = d.multiplier.divisor, first = channel * many;
    const T* source = d.source.at(pixel.image, 0, 0) + first * d.source.channel;
    const T* weight = d.weight + first * d.weight_channel;
    Computed<T> sum = 0;
    for (std::int32_t i = 0; i < d.rows; ++i) {
      const std::int32_t down = std::int32_t(pixel.row) + d.padding_y - i * d.dilation_y;
      const std::int32_t y = std::int32_t(d.stride_y.quotient(std::uint32_t(std::max(down, 0))));
      if (down < 0 || y * std::int32_t(d.stride_y.divisor) != down) continue;
      for (std::int32_t j = 0; j < d.columns; ++j) {
        const std::int32_t across = std::int32_t(pixel.column) + d.padding_x - j * d.dilation_x;
        const std::int32_t x =
            std::int32_t(d.stride_x.quotient(std::uint32_t(std::max(across, 0))));
        if (across < 0 || x * std::int32_t(d.stride_x.divisor) != across || !d.inside(y, x))
          continue;
        const std::int64_t from = y * d.source.row + x * d.source.column;
        const std::int64_t with = i * d.weight_row + j * d.weight_column;
        for (std::uint32_t o = 0; o < many; ++o) {
          sum += source[from + o * d.source.channel] * weight[with + o * d.weight_channel];
        }
      }
    }
    d.out.at(pixel.image, pixel.row, pixel.column)[channel * d.out.channel] = T(sum);
  });
}

// `source` is x and `grad` the output's gradient. blockIdx.y selects the tap. The partial sums are
// parts[chunk][tap][output channel].
template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    depthwise_weight_grad_kernel(const __grid_constant__ Depthwise<T> d,
                                 const __grid_constant__ ImageView<const T> grad,
                                 const __grid_constant__ PixelGrid pixels,
                                 const __grid_constant__ ChannelTiles t, Computed<T>* parts) {
  NEEDLE_SHARED(shared, Computed<T>[kChannelThreads]);
  const ChannelThread my(t);
  const std::int32_t i = std::int32_t(blockIdx.y) / d.columns;
  const std::int32_t j = std::int32_t(blockIdx.y) % d.columns;
  const std::int64_t from = d.multiplier.quotient(my.channel) * d.source.channel;
  Computed<T> sum = 0;
#pragma unroll 2
  for (std::uint32_t n = my.first; n < my.end; n += my.step) {
    const PixelIndex pixel = pixels.at(n);
    const std::int32_t y =
        std::int32_t(pixel.row * d.stride_y.divisor) + i * d.dilation_y - d.padding_y;
    const std::int32_t x =
        std::int32_t(pixel.column * d.stride_x.divisor) + j * d.dilation_x - d.padding_x;
    if (!d.inside(y, x)) continue;
    sum += d.source.at(pixel.image, y, x)[from] *
           grad.at(pixel.image, pixel.row, pixel.column)[my.channel * grad.channel];
  }
  sum = add_threads(sum, shared, t.across);
  if (threadIdx.x < t.across && my.channel < t.channels) {
    parts[(std::size_t(my.chunk) * gridDim.y + blockIdx.y) * t.channels + my.channel] = sum;
  }
}

// Launches one thread for each element of `out`.
template <class T>
void launch_depthwise(const char* op, void (*kernel)(Depthwise<T>, ElementGrid),
                      const Depthwise<T>& all, Out out) {
  each_element_grid(op, out, [&](const ElementGrid& grid, std::int64_t first) {
    Depthwise<T> d = all;
    d.source = d.source.from(first);
    d.out = d.out.from(first);
    launch(op, out.device, {ceil_div(grid.size, kImageThreads)}, {kImageThreads}, kernel, d, grid);
  });
}

template <class T>
void depthwise(In x, In weight, const View* bias, Computed<T> least, Out out,
               const Geometry& geometry) {
  Depthwise<T> d = depthwise_of<T>(x, weight, out, geometry);
  d.least = least;
  if (bias != nullptr) d.bias = data_of<const T>(*bias), d.bias_step = bias->strides[0];
  launch_depthwise("conv2d", depthwise_kernel<T>, d, out);
}

template <class T>
void depthwise_input_grad(In grad, In weight, Out x_grad, const Geometry& geometry) {
  launch_depthwise("conv2d_input_grad", depthwise_input_grad_kernel<T>,
                   depthwise_of<T>(grad, weight, x_grad, geometry), x_grad);
}

}  // namespace
}  // namespace needle::cuda
