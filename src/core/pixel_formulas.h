// The formulas of image augmentation for one value or pixel. The CPU's loops (src/data) and the
// GPU's kernel (src/cuda/augment.cu) compile this file without fusing multiplications and
// additions, so both equal the NumPy definitions bit for bit. All of it is static, because objects
// compiled for different instruction sets must share no code.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "scalar_math.h"  // NEEDLE_HD

#define NEEDLE_PIXEL [[maybe_unused, gnu::always_inline]] static inline NEEDLE_HD

namespace needle::pixel {

using Byte = std::uint8_t;

// ---- bytes to floats ----

// Computes x / 255 for a byte x without a division. kHigh has 16 bits, so x * kHigh is exact.
// Adding x * kLow, the rest of x / 255, rounds as the division does, for all 256 values.
constexpr float kHigh = 0x8081p-23f;
constexpr float kLow = static_cast<float>(1.0 / 255.0 - static_cast<double>(kHigh));

template <class T>  // a float or a vector of them
NEEDLE_PIXEL T scaled(T x) {
  return x * kHigh + x * kLow;
}

constexpr bool all_scaled_are_quotients() {
  for (int x = 0; x < 256; ++x) {
    const float value = static_cast<float>(x);
    const float high = value * kHigh, low = value * kLow;
    if (high + low != value / 255.0f) return false;
  }
  return true;
}
static_assert(all_scaled_are_quotients());

// ---- colours ----

// Compares as the vector maximum and minimum instructions do, so a NaN stays.
NEEDLE_PIXEL float clip(float value, float most) {
  const float positive = 0.0f > value ? 0.0f : value;
  return most < positive ? most : positive;
}

// The last bit of a float above 2**23 has the value 1, so the addition rounds half to even.
NEEDLE_PIXEL Byte to_byte(float value) {
  const float rounded = clip(value, 255.0f) + 8388608.0f;
  std::uint32_t bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  return Byte(bits);
}

// ---- affine maps ----

constexpr int kFractionBits = 11;
constexpr int kUnit = 1 << kFractionBits;
constexpr double kFar = 1099511627776.0;  // 2**40: larger coordinates are outside of any image

// Returns a * x + moved + c, the input coordinate of output column x along one axis. `moved` is the
// term of the output row.
NEEDLE_PIXEL double place(double a, int x, double moved, double c) {
  const double at = a * double(x) + moved + c;
  const double near = -kFar > at ? -kFar : at;
  return kFar < near ? kFar : near;
}

// Rounds to a whole number of units of 2**-11; halves are rounded up.
NEEDLE_PIXEL double in_units(double at) { return std::floor(at * double(kUnit) + 0.5); }

// Interpolates between four pixels, given row by row, at fraction u along x and fraction v along y.
NEEDLE_PIXEL Byte mixed(const int x[4], int u, int v) {
  const int upper = x[0] * (kUnit - u) + x[1] * u, lower = x[2] * (kUnit - u) + x[3] * u;
  const int sum = upper * (kUnit - v) + lower * v + (1 << (2 * kFractionBits - 1));
  return Byte(sum >> (2 * kFractionBits));
}

NEEDLE_PIXEL float mixed(const float x[4], float u, float v) {
  const float s = 1.0f - u, t = 1.0f - v;
  return (x[0] * s + x[1] * u) * t + (x[2] * s + x[3] * u) * v;
}

// ---- resizing of bytes: columns are summed to lines of 16-bit values, and lines to bytes ----

constexpr int kWeightBits = 14;
constexpr int kLineShift = 7, kOutShift = 2 * kWeightBits - kLineShift;
constexpr int kLineHalf = 1 << (kLineShift - 1), kOutHalf = 1 << (kOutShift - 1);

}  // namespace needle::pixel
