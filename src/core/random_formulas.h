// Converts Philox's words to elements, for the kernel row random. Element i uses word i % 4 of
// block i / 4. Every operation here is exact or rounded once as in IEEE 754, and the order is
// fixed. Files that include this are compiled without fused multiply-add. So CPUs, GPUs and the
// NumPy definition (python/needle/accelerated/random.py) give the same bits. All functions are
// static.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "philox.h"
#include "random_ops.h"

#define NEEDLE_RANDOM [[maybe_unused]] static inline NEEDLE_HD

namespace needle::random_numbers {

constexpr int kWords = 4;                                // of a block
constexpr std::uint32_t kTensorStream = (1u << 24) - 4;  // philox.TENSOR_STREAM in Python

// Returns the words of elements 4 * block to 4 * block + 3 of draw number `draw`.
NEEDLE_RANDOM PhiloxBlock words_of(PhiloxKey key, std::uint32_t draw, std::uint64_t block) {
  return philox_block({{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                        draw, kTensorStream << 8}},
                      key);
}

// Returns a value in [0, 1): float32 takes the 24 bits that it can hold, float64 all 32.
template <class T>
NEEDLE_RANDOM T uniform(std::uint32_t word) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(word >> 8) * 0x1p-24f;
  return static_cast<T>(word * 0x1p-32);
}

// Returns log(odd / 2**33) for odd below 2**32, from the series of atanh on [sqrt(1/2), sqrt(2)).
NEEDLE_RANDOM double log_share(std::uint32_t odd) {
  int exponent = -1;  // odd / 2**33 = x * 2**exponent
  for (int shift = 16; shift > 0; shift /= 2) {
    if (odd >> (32 - shift) == 0) odd <<= shift, exponent -= shift;
  }
  double x = odd * 0x1p-32;
  if (x < 0.70710678118654752440) x *= 2.0, exponent -= 1;
  const double s = (x - 1.0) / (x + 1.0), square = s * s;
  double sum = 1.0 / 23.0;
  for (int odd_number = 21; odd_number > 0; odd_number -= 2) {
    sum = sum * square + 1.0 / odd_number;
  }
  return exponent * 0.69314718055994530942 + 2.0 * s * sum;
}

// x ** 7 * c[0] + ... + c[7]
NEEDLE_RANDOM double polynomial(const double (&c)[8], double x) {
  double sum = c[0];
  for (int i = 1; i < 8; ++i) sum = sum * x + c[i];
  return sum;
}

// Returns the normal quantile of (word + 1/2) / 2**32 by algorithm AS 241 (Wichura, Applied
// Statistics 37, 1988), whose far tail begins beyond the last word.
NEEDLE_RANDOM double normal(std::uint32_t word) {
  const double q = (word + 0.5) * 0x1p-32 - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double above[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                            6.7265770927008700853e+4, 4.5921953931549871457e+4,
                            1.3731693765509461125e+4, 1.9715909503065514427e+3,
                            1.3314166789178437745e+2, 3.3871328727963666080e+0};
    const double below[] = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                            3.9307895800092710610e+4, 2.1213794301586595867e+4,
                            5.3941960214247511077e+3, 6.8718700749205790830e+2,
                            4.2313330701600911252e+1, 1.0};
    const double r = 0.180625 - q * q;
    return polynomial(above, r) * q / polynomial(below, r);
  }
  const double above[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                          2.41780725177450611770e-1, 1.27045825245236838258e+0,
                          3.64784832476320460504e+0, 5.76949722146069140550e+0,
                          4.63033784615654529590e+0, 1.42343711074968357734e+0};
  const double below[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                          1.51986665636164571966e-2, 1.48103976427480074590e-1,
                          6.89767334985100004550e-1, 1.67638483018380384940e+0,
                          2.05319162663775882187e+0, 1.0};
  const std::uint32_t least = q < 0 ? word : ~word;  // distance from the nearer tail; below 2**31
  const double r = std::sqrt(-log_share(2 * least + 1)) - 1.6;
  const double distance = polynomial(above, r) / polynomial(below, r);
  return q < 0 ? -distance : distance;
}

// A distribution with its parameters. It converts a word to an element.
template <RandomOp op, class T>
struct Draw {
  T a, b;
  std::uint64_t bound;  // bernoulli: how many of the 2**32 words give b

  Draw(double a_, double b_)
      : a(static_cast<T>(a_)),
        b(static_cast<T>(b_)),
        bound(static_cast<std::uint64_t>(std::ceil((a_ < 0   ? 0
                                                    : a_ > 1 ? 1
                                                             : a_) *
                                                   0x1p32))) {}

  NEEDLE_HD T of(std::uint32_t word) const {
    if constexpr (op == RandomOp::bernoulli) {
      return word < bound ? b : T(0);
    } else if constexpr (op == RandomOp::normal) {
      return static_cast<T>(normal(word)) * b + a;
    } else {
      return uniform<T>(word) * b + a;
    }
  }
};

}  // namespace needle::random_numbers
