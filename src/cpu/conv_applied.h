// The part of a convolution's kernel that reaches the image, for conv2d and its gradients
// (conv2d.cc, conv2d_weight_grad.cc). On small images the outer positions of a kernel meet only
// padding: on an image of one pixel, only the centre of 3 x 3 weights is ever used.
#pragma once

#include "conv_taps.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// A range of kernel positions along one axis.
struct Positions {
  Index first, count;
};

// Returns the range of kernel positions along one axis that meet a pixel in some window. It has at
// least one position, and enough of them that the padding stays non-negative.
[[maybe_unused]] Positions applied_positions(Index kernel, Index pixels, Index windows,
                                             Index stride, Index padding, Index dilation) {
  const auto applies = [&](Index position) {
    const Index seen = position * dilation - padding;  // by the first window
    const Index before = seen < 0 ? ceil_div(-seen, stride) : 0;
    return before < windows && seen + before * stride < pixels;
  };
  Index first = 0, last = kernel - 1;
  while (first < last && (first + 1) * dilation <= padding && !applies(first)) ++first;
  while (first < last && !applies(last)) --last;
  return {first, last - first + 1};
}

struct Kernel {
  View weight;
  Geometry geometry;
};

// Returns the kernel without its outer rows and columns that only meet padding.
template <class T>
Kernel applied_kernel(const View& image, const View& weight, const View& windows,
                      const Geometry& geometry) {
  const Positions rows =
      applied_positions(weight.shape[0], image.shape[1], windows.shape[1], geometry.stride.h,
                        geometry.padding.h, geometry.dilation.h);
  const Positions columns =
      applied_positions(weight.shape[1], image.shape[2], windows.shape[2], geometry.stride.w,
                        geometry.padding.w, geometry.dilation.w);
  Kernel kernel{weight, geometry};
  kernel.weight.data =
      data_of<T>(weight) + rows.first * weight.strides[0] + columns.first * weight.strides[1];
  kernel.weight.shape[0] = rows.count;
  kernel.weight.shape[1] = columns.count;
  kernel.geometry.padding.h -= rows.first * geometry.dilation.h;
  kernel.geometry.padding.w -= columns.first * geometry.dilation.w;
  return kernel;
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
