// Partial moments of a convolution's result, for batch norm: for each 64 consecutive pixels (rows
// of the product) the mean of each channel and the sum of squared deviations from it, of the
// numbers as they are stored. Their array has shape (ceil(pixels / 64), 2, C); the formula of Chan,
// Golub & LeVeque (1979) combines them. conv2d.cu reads the result from memory;
// sm90/moments_epilogue.h has it in registers.
#pragma once

#include <cstdint>

#include "device.h"

namespace needle::cuda {
namespace {

constexpr std::uint32_t kMomentRows = 64;

struct Moment {
  float mean, squares;  // squares of the deviations from the mean
};

// Sums over some rows of a column: of the deviations from `origin`, one of the values, and of their
// squares. `origin` is at most sqrt(rows) standard deviations from the mean, so a large mean costs
// no precision.
struct Deviations {
  float origin, sum, squares;

  __device__ void add(float value) {
    const float deviation = value - origin;
    sum += deviation;
    squares += deviation * deviation;
  }
  __device__ Moment moment(float rows) const {
    const float shift = sum / rows, spread = squares - shift * sum;
    return {origin + shift, spread < 0 ? 0 : spread};  // NaN stays
  }
};

}  // namespace
}  // namespace needle::cuda
