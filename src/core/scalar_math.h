// The scalar functions that elementwise_ops.h and the casts use. Those that should vectorise in a
// loop have no branches. Every function is static, because objects compiled for different
// instruction sets must share no code. CUDA includes the same file. float32 exp, log, tanh and erf
// are here, within 1.5 ulp; wide_math.h has the other functions of real numbers. Formulas call the
// C library for the rest.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "bfloat16.h"

#define NEEDLE_MATH [[maybe_unused]] static inline NEEDLE_HD

namespace needle::math {

template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T>;

template <class T>
struct UnsignedOf {  // the type in which overflow wraps; int itself for narrower types
  using type = std::make_unsigned_t<decltype(T() + 0)>;
};

// ---- arithmetic: integers wrap, as the array API expects, without undefined behaviour ----

template <class T>
NEEDLE_MATH T add(T x, T y) {
  if constexpr (kIsFloat<T>)
    return x + y;
  else
    return T(typename UnsignedOf<T>::type(x) + typename UnsignedOf<T>::type(y));
}

template <class T>
NEEDLE_MATH T subtract(T x, T y) {
  if constexpr (kIsFloat<T>)
    return x - y;
  else
    return T(typename UnsignedOf<T>::type(x) - typename UnsignedOf<T>::type(y));
}

template <class T>
NEEDLE_MATH T multiply(T x, T y) {
  if constexpr (kIsFloat<T>)
    return x * y;
  else
    return T(typename UnsignedOf<T>::type(x) * typename UnsignedOf<T>::type(y));
}

template <class T>
NEEDLE_MATH T negative(T x) {
  if constexpr (kIsFloat<T>)
    return -x;
  else
    return subtract(T(0), x);
}

template <class T>
NEEDLE_MATH T abs(T x) {
  if constexpr (kIsFloat<T>)
    return std::fabs(x);
  else if constexpr (std::is_unsigned_v<T>)
    return x;
  else
    return x < 0 ? negative(x) : x;
}

template <class T>
NEEDLE_MATH T sign(T x) {
  if constexpr (kIsFloat<T>)
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : x + T(0);  // NaN stays
  else
    return T((x > T(0)) - (x < T(0)));
}

template <class T>
NEEDLE_MATH T invert(T x) {
  if constexpr (std::is_same_v<T, bool>)
    return !x;
  else
    return T(~x);
}

template <class T>
NEEDLE_MATH bool is_infinite(T x) {
  return std::fabs(x) == std::numeric_limits<T>::infinity();
}

template <class T>
NEEDLE_MATH bool is_finite(T x) {
  return std::fabs(x) < std::numeric_limits<T>::infinity();
}

// NaN wins in both.
template <class T>
NEEDLE_MATH T maximum(T x, T y) {
  if constexpr (kIsFloat<T>)
    return ((x > y) | (x != x)) ? x : y;
  else
    return x > y ? x : y;
}

template <class T>
NEEDLE_MATH T minimum(T x, T y) {
  if constexpr (kIsFloat<T>)
    return ((x < y) | (x != x)) ? x : y;
  else
    return x < y ? x : y;
}

// The gradient that relu lets pass: grad where relu's operand (or result) y is positive, else 0;
// NaN where y is NaN. V is an element or a vector of them.
template <class V>
NEEDLE_MATH V relu_passed(V grad, V y) {
  const V rest = y == y ? V{} : y;
  return y > V{} ? grad : rest;
}

// ---- division as Python's // and %; an integer divided by zero gives 0 ----

template <class T>
NEEDLE_MATH T floor_divide(T x, T y) {
  if constexpr (kIsFloat<T>) {
    if (y == T(0)) return x / y;
    T rest = std::fmod(x, y);
    T quotient = (x - rest) / y;
    if (rest != T(0) && (y < T(0)) != (rest < T(0))) quotient -= T(1);
    if (quotient == T(0)) return std::copysign(T(0), x / y);
    T whole = std::floor(quotient);
    return quotient - whole > T(0.5) ? whole + T(1) : whole;
  } else if constexpr (std::is_unsigned_v<T>) {
    return y == 0 ? T(0) : T(x / y);
  } else {
    if (y == 0) return 0;
    if (y == -1) return negative(x);  // the smallest integer / -1 wraps
    return x / y - (x % y != 0 && (x < 0) != (y < 0));
  }
}

template <class T>
NEEDLE_MATH T remainder(T x, T y) {
  if constexpr (kIsFloat<T>) {
    T rest = std::fmod(x, y);
    if (rest == T(0)) return std::copysign(T(0), y);
    return (y < T(0)) != (rest < T(0)) ? rest + y : rest;
  } else if constexpr (std::is_unsigned_v<T>) {
    return y == 0 ? T(0) : T(x % y);
  } else {
    if (y == 0 || y == -1) return 0;
    T rest = x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  }
}

// The C libraries' float pow, tan and atan2 are within 1.5 ulp; CUDA's are within 4 ulp.
#ifdef __CUDA_ARCH__
using LibraryFloat = double;
#else
using LibraryFloat = float;
#endif
NEEDLE_MATH float pow(float x, float y) {
  return float(std::pow(LibraryFloat(x), LibraryFloat(y)));
}
NEEDLE_MATH double pow(double x, double y) { return std::pow(x, y); }
NEEDLE_MATH float tan(float x) { return float(std::tan(LibraryFloat(x))); }
NEEDLE_MATH double tan(double x) { return std::tan(x); }
NEEDLE_MATH float atan2(float x, float y) {
  return float(std::atan2(LibraryFloat(x), LibraryFloat(y)));
}
NEEDLE_MATH double atan2(double x, double y) { return std::atan2(x, y); }

template <class T>
NEEDLE_MATH T power(T x, T y) {
  if constexpr (kIsFloat<T>) {
    return pow(x, y);
  } else {
    if constexpr (std::is_signed_v<T>) {  // a negative exponent truncates: 0 but for 1 and -1
      if (y < 0) return x == 1 ? T(1) : x == -1 ? T(y % 2 == 0 ? 1 : -1) : T(0);
    }
    T result = 1;
    for (; y != 0; y /= 2) {
      if (y % 2 != 0) result = multiply(result, x);
      x = multiply(x, x);
    }
    return result;
  }
}

// ---- float32 exp, log, tanh, erf: polynomials in the manner of Cephes, least-squares coefficients
// ----

NEEDLE_MATH float exp_in_range(float x) {
  // x = n ln2 + r, |r| <= ln2 / 2; adding 1.5 * 2^23 rounds and leaves n in the low bits.
  const float magic = 12582912.0f;
  float shifted = x * 1.44269504088896341f + magic;
  float n = shifted - magic;
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 0.00139337336f;
  p = p * r + 0.00836323574f;
  p = p * r + 0.041666463f;
  p = p * r + 0.166665763f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  // 2^n as two factors: one float cannot hold it if the result is subnormal or near the maximum.
  std::int32_t i = __builtin_bit_cast(std::int32_t, shifted) - 0x4b400000;
  std::int32_t half = i >> 1;
  float first = __builtin_bit_cast(float, std::uint32_t(half + 127) << 23);
  float second = __builtin_bit_cast(float, std::uint32_t(i - half + 127) << 23);
  return p * first * second;
}

NEEDLE_MATH float exp(float x) {
  float clamped = x > 89.0f ? 89.0f : x;  // above ln(max) and below ln(min subnormal) / 2: exact
  clamped = clamped < -104.0f ? -104.0f : clamped;
  float result = exp_in_range(clamped);
  return x != x ? x : result;
}
NEEDLE_MATH double exp(double x) { return std::exp(x); }

NEEDLE_MATH float log(float x) {
  const float smallest_normal = std::numeric_limits<float>::min();
  const float infinity = std::numeric_limits<float>::infinity();
  bool subnormal = x < smallest_normal;
  float scaled = subnormal ? x * 8388608.0f : x;
  // scaled = 2^e m with m in [sqrt(1/2), sqrt(2)).
  std::uint32_t bits = __builtin_bit_cast(std::uint32_t, scaled) - 0x3f3504f3u;
  std::int32_t exponent = std::int32_t(bits) >> 23;
  float m = __builtin_bit_cast(float, (bits & 0x007fffffu) + 0x3f3504f3u);
  float e = float(exponent) - (subnormal ? 23.0f : 0.0f);
  float f = m - 1.0f;
  float p = 0.0714975372f;
  p = p * f + -0.115712009f;
  p = p * f + 0.116615109f;
  p = p * f + -0.124110505f;
  p = p * f + 0.142499372f;
  p = p * f + -0.166684806f;
  p = p * f + 0.200007081f;
  p = p * f + -0.249999896f;
  p = p * f + 0.333333313f;
  float square = f * f;
  float tail = f * square * p + e * -2.12194440e-4f - 0.5f * square;
  float result = f + tail + e * 0.693359375f;
  result = x == infinity ? infinity : result;
  result = x == 0.0f ? -infinity : result;
  return x >= 0.0f ? result : std::numeric_limits<float>::quiet_NaN();
}
NEEDLE_MATH double log(double x) { return std::log(x); }

NEEDLE_MATH float tanh(float x) {
  float a = std::fabs(x);
  float square = x * x;
  float p = 0.00225890265f;
  p = p * square + -0.00831500906f;
  p = p * square + 0.0217603501f;
  p = p * square + -0.0539582185f;
  p = p * square + 0.133332983f;
  p = p * square + -0.333333343f;
  float small = a + a * square * p;
  float large = 1.0f - 2.0f / (exp_in_range(a < 10.0f ? 2.0f * a : 20.0f) + 1.0f);
  float result = std::copysign(a < 0.625f ? small : large, x);
  return x != x ? x : result;
}
NEEDLE_MATH double tanh(double x) { return std::tanh(x); }

// erf(x) = x + x P(x^2) near zero, 1 - exp(Q(|x|)) beyond; 1 from 4 on.
NEEDLE_MATH float erf(float x) {
  float a = std::fabs(x);
  float t = a < 4.0f ? a : 4.0f;
  float square = t * t;
  float p = 8.35272876e-05f;
  p = p * square - 0.000813927094f;
  p = p * square + 0.00520078698f;
  p = p * square - 0.0268593188f;
  p = p * square + 0.112836942f;
  p = p * square - 0.376126349f;
  p = p * square + 0.128379166f;
  float q = -2.14253141e-05f;
  q = q * t + 0.000438137969f;
  q = q * t - 0.00418817485f;
  q = q * t + 0.0251626484f;
  q = q * t - 0.108344086f;
  q = q * t - 0.633291364f;
  q = q * t - 1.12954116f;
  q = q * t + 0.000179875438f;
  float result = t < 0.92f ? t + t * p : 1.0f - exp_in_range(q);
  return x != x ? x : std::copysign(result, x);
}
NEEDLE_MATH double erf(double x) { return std::erf(x); }

// ---- casts: C conversion, made defined ----
// float to integer truncates; out of range saturates, NaN gives 0; to uint8 by way of int32 (the
// low byte). integer to narrower integer keeps the low bits. To bool: x != 0.

template <class To, class From>
NEEDLE_MATH To saturate(From x) {
  constexpr From low = From(std::numeric_limits<To>::min());
  constexpr From limit = -low;  // 2^31 or 2^63, exact
  if (x >= limit) return std::numeric_limits<To>::max();
  if (x < low) return std::numeric_limits<To>::min();
  return x == x ? To(x) : To(0);
}

template <class To, class From>
NEEDLE_MATH To convert(From x) {
  if constexpr (std::is_same_v<To, bool>)
    return x != From(0);
  else if constexpr (!kIsFloat<From> || kIsFloat<To>)
    return To(x);
  else if constexpr (sizeof(To) < 4)
    return To(saturate<std::int32_t>(x));
  else
    return saturate<To>(x);
}

}  // namespace needle::math
