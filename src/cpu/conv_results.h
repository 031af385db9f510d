// The results of a chunk of pixels, for conv_rows.h: bias, ReLU, and the copy to the image if they
// were computed in a buffer.
#pragma once

#include "conv_taps.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// Returns true if consecutive pixels of the grid are evenly spaced in memory and have contiguous
// channels.
template <class T>
bool is_linear(const Image<T>& out) {
  return out.channel_stride == 1 &&
         (out.height == 1 || out.row_stride == out.width * out.column_stride) &&
         (out.images == 1 || out.image_stride == out.height * out.width * out.column_stride);
}

// Writes columns [first, last) of a chunk that was computed in a buffer.
template <class T>
void scatter_rows(const TapProduct<T>& p, Index begin, Index end, const T* rows, Index first,
                  Index last) {
  Pixel pixel = pixel_at(p.grid, begin);
  for (Index index = begin; index < end; ++index, rows += p.out.channels) {
    T* to = p.out.at(pixel.n, pixel.i, pixel.j);
    for (Index o = first; o < last; ++o) to[o * p.out.channel_stride] = rows[o];
    advance(p.grid, pixel);
  }
}

// Initialises the rows of results with the bias, if there is one.
template <class T>
void set_bias(const T* bias, Index pixels, Index first, Index last, T* out, Index pixel_stride) {
  if (bias == nullptr) return;
  for (Index index = 0; index < pixels; ++index, out += pixel_stride) {
    for (Index o = first; o < last; ++o) out[o] = bias[o];
  }
}

// With ReLU, clamps the rows of results to at least p.least.
template <class T>
void raise(const TapProduct<T>& p, Index pixels, Index first, Index last, T* out,
           Index pixel_stride) {
  if (!p.has_floor()) return;
  for (Index index = 0; index < pixels; ++index, out += pixel_stride) {
    for (Index o = first; o < last; ++o) out[o] = p.least > out[o] ? p.least : out[o];
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
