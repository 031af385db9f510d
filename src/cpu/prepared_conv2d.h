// Convolution of float32 with prepared weights. They are stored once, in the order in which
// the algorithm for a shape reads them (transformed for Winograd, else in panels), for many
// calls.
#pragma once

#include "core/kernel_table.h"

namespace needle::cpu {

// Shapes are (N, H, W, C) for images and (KH, KW, C, O) for weights.
struct ImageShape {
  std::int64_t n, h, w, c;
};

struct PreparedConv2d {
  // Returns the number of elements of the prepared weights; 0 if preparing does not pay.
  std::int64_t (*size)(const ImageShape& x, const ImageShape& weight, const Geometry& geometry);
  // Writes the prepared weights for images of shape x to `out`, which has size() elements.
  void (*prepare)(In weight, Out out, const ImageShape& x, const Geometry& geometry);
  // Computes conv2d with such weights. If they are not in the order that x and the selected
  // instruction set need, it reads `weight`.
  void (*run)(In x, In weight, In prepared, Out out, const Geometry& geometry,
              const Epilogue& epilogue);
};

}  // namespace needle::cpu
