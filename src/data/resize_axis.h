// The weights of a resized axis: which input positions each output position reads, and how much of
// each. They are computed once, by baseline code with the same float64 operations in the same order
// as NumPy's definition; the kernels of resize.cc, one per instruction set, only read the tables.
#pragma once

#include <cstdint>

#include "core/pixel_formulas.h"

namespace needle::data {

// Output position i is the sum over t < taps of weight[i * taps + t] * input[first[i] + t]. Rows
// with fewer taps are padded with zero weights. Their inputs may be out of bounds, so readers have
// slack or stop at count[i]. `taps` is even, and the number of rows is padded to a multiple of 8
// with empty rows, so that vectors need no tail.
struct ResizeAxis {
  std::int64_t in = 0, out = 0;
  bool antialias = false, mirrored = false;
  std::int64_t taps = 0;
  const std::int32_t* first = nullptr;
  const std::int32_t* count = nullptr;
  const std::int16_t* weight = nullptr;  // in units of 2**-14
  const float* real =
      nullptr;  // as floats; not mirrored: the weights of the last position come first
  // Weights t and t + 1 share one word. A vector of eight words needs those of positions i and i +
  // 4 of a group of eight, four times each. They start at pairs[((i / 8 * 4 + i % 4) * taps / 2 + t
  // / 2) * 8 + i / 4 % 2 * 4].
  const std::int32_t* pairs = nullptr;
};

using pixel::kWeightBits;

// Returns the table of a triangle filter with half-pixel centres, which is widened by in / out when
// shrinking with `antialias`. It is computed in float64, in this order: scale = in / out; support =
// antialias && scale > 1 ? scale : 1; centre = (i + 0.5) * scale; for x from max(0, floor(centre -
// support + 0.5)) to (exclusive) min(in, floor(centre + support + 0.5)): w = max(0, 1 - |(x + 0.5 -
// centre) / support|), divided by their sum, which is taken from the first to the last. 2**14 w is
// rounded half to even; the largest (the first of several) absorbs the difference to 2**14.
// `mirrored` is for an input that is read from the last position to the first. The calling thread's
// cache owns the table: it is valid until this thread has requested eight others.
const ResizeAxis& resize_axis(std::int64_t in, std::int64_t out, bool antialias, bool mirrored);

// Returns the input position nearest to the centre of output position i: floor((i + 1/2) * in /
// out).
std::int64_t nearest_place(std::int64_t i, std::int64_t in, std::int64_t out);

}  // namespace needle::data
