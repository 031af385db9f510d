// bfloat16 is the upper half of a float32: 8 exponent bits keep float32's range, and 8 significand
// bits remain. It is a storage type: arithmetic happens in Computed<T>, which is float here, and
// each result is rounded once. Rounding uses integer arithmetic, so all machines agree.
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#define NEEDLE_HD __host__ __device__
#else
#define NEEDLE_HD
#endif

namespace needle {

struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  // Rounds to nearest, ties to even; a NaN stays a NaN.
  explicit NEEDLE_HD BFloat16(float x) {
    const auto word = __builtin_bit_cast(std::uint32_t, x);
    bits = static_cast<std::uint16_t>(x != x ? word >> 16 | 0x40
                                             : (word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  NEEDLE_HD operator float() const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
};

// The type in which elements of type T are computed.
template <class T>
using Computed = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

}  // namespace needle
