// Partial moments of a convolution's result, for batch norm. Each part covers 64 consecutive pixels
// (rows of the product). It has each channel's mean and the sum of squared deviations from that
// mean, computed from the values as they are stored. The array has shape (ceil(pixels / 64), 2, C);
// the formula of Chan, Golub & LeVeque (1979) combines the parts. conv2d.cu computes them from the
// result in memory, sm90/moments_epilogue.h from registers.
#pragma once

#include <cstdint>

#include "device.h"

namespace needle::cuda {
namespace {

constexpr std::uint32_t kMomentRows = 64;

struct Moment {
  float mean, squares;  // squares of the deviations from the mean
};

// Sums over some rows of a column: of the deviations from `origin`, and of their squares. `origin`
// is one of the values, so it is at most sqrt(rows) standard deviations from the mean, and a large
// mean costs no precision.
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
