// Convolution with prepared weights: the weights in the order in which the algorithm for a shape
// reads them (Winograd's transformed, others in panels), computed once for many calls. For float32.
#pragma once

#include "core/kernel_table.h"

namespace needle::cpu {

// (N, H, W, C) of images; (KH, KW, C, O) of weights.
struct ImageShape {
  std::int64_t n, h, w, c;
};

struct PreparedConv2d {
  // The number of elements; 0 if it is not worth it.
  std::int64_t (*size)(const ImageShape& x, const ImageShape& weight, const Geometry& geometry);
  // Writes the prepared weights for images of shape x to `out`, which has as many elements.
  void (*prepare)(In weight, Out out, const ImageShape& x, const Geometry& geometry);
  // conv2d with such weights. If they are not those that x or the selected instruction set needs,
  // it reads `weight`.
  void (*run)(In x, In weight, In prepared, Out out, const Geometry& geometry,
              const Epilogue& epilogue);
};

}  // namespace needle::cpu
