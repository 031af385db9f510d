// float32 functions that are computed in double and rounded once. Results are within 0.51 ulp on
// every device and over the whole range, including tails and subnormal results. The approximations
// are accurate to 5e-11 and free of branches, so loops over them vectorise. The overloads for
// double are within a few ulp. The rows of elementwise_ops.h use these functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "scalar_math.h"

namespace needle::math {

// ---- in double: minimax polynomials (Remez exchange), coefficients lowest degree last ----

// e^x as scale * (1 + grown), for |x| <= 700. expm1(x) is computed as scale * grown +
// (scale - 1), which avoids cancellation.
struct Exponential {
  double scale, grown;
};

NEEDLE_MATH Exponential exponential(double x) {
  const double magic = 6755399441055744.0;  // 1.5 * 2^52: the sum rounds, n is in the low bits
  double shifted = x * 1.4426950408889634 + magic;
  double r = x - (shifted - magic) * 0.6931471805599453;  // |r| <= ln2 / 2
  double p = 0.00019767673255065222;
  p = p * r + 0.0013945909656615852;
  p = p * r + 0.0083335689551690796;
  p = p * r + 0.041666272384978967;
  p = p * r + 0.16666665163167869;
  p = p * r + 0.50000000771964342;
  p = p * r + 1.0000000002086993;
  std::uint64_t n = __builtin_bit_cast(std::uint64_t, shifted);
  return {__builtin_bit_cast(double, (n + 1023) << 52), p * r};
}

// Clamps x to [-limit, limit]; a NaN stays NaN.
NEEDLE_MATH double limited(double x, double limit) {
  x = x > limit ? limit : x;
  return x < -limit ? -limit : x;
}

// e^x for float: below -200 it is 0, and above 200 it is e^200, which float rounds to infinity.
NEEDLE_MATH double wide_exp(double x) {
  Exponential e = exponential(x > 200.0 ? 200.0 : x);
  return x < -200.0 ? 0.0 : e.scale + e.scale * e.grown;
}

NEEDLE_MATH double wide_expm1(double x) {
  Exponential e = exponential(limited(x, 200.0));
  return e.scale * e.grown + (e.scale - 1.0);
}

// Returns log(1 + t) for t in [0, 1] as 2 atanh(t / (2 + t)).
NEEDLE_MATH double wide_log1p_unit(double t) {
  double s = t / (2.0 + t), z = s * s;
  double p = 0.10939354867899848;
  p = p * z + 0.085582504519196303;
  p = p * z + 0.11152940064783459;
  p = p * z + 0.14284051257032391;
  p = p * z + 0.20000031271590545;
  p = p * z + 0.33333333113646174;
  p = p * z + 1.0000000000025141;
  return 2.0 * s * p;
}

// Returns log x for normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(f / (2
// + f)).
NEEDLE_MATH double wide_log_normal(double x) {
  const std::uint64_t root_half = 0x3fe6a09e667f3bcdu, mantissa = 0x000fffffffffffffu;
  std::uint64_t bits =
      __builtin_bit_cast(std::uint64_t, x) - root_half + (std::uint64_t(2048) << 52);
  double m = __builtin_bit_cast(double, (bits & mantissa) + root_half);
  // The exponent, too large by 2048, becomes a double without an integer conversion.
  double e = __builtin_bit_cast(double, (bits >> 52) | 0x4330000000000000u) - 4503599627372544.0;
  double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 0.11808805635576021;
  p = p * z + 0.14267489224337777;
  p = p * z + 0.20000192993301016;
  p = p * z + 0.33333332619940082;
  p = p * z + 1.0000000000042141;
  return 2.0 * s * p + e * 0.6931471805599453;
}

// Returns log x for any x that is not subnormal.
NEEDLE_MATH double wide_log(double x) {
  const double infinity = std::numeric_limits<double>::infinity();
  double result = wide_log_normal(x);
  result = x < infinity ? result : x;  // infinity and NaN
  result = x == 0.0 ? -infinity : result;
  return x < 0.0 ? std::numeric_limits<double>::quiet_NaN() : result;
}

// Returns log(1 + x); the rounding error of 1 + x is added to the result.
NEEDLE_MATH double wide_log1p(double x) {
  double u = 1.0 + x, lost = x - (u - 1.0);
  return wide_log(u) + (std::fabs(x) < 1.0 ? lost : 0.0);
}

// Returns e^(t*t) erfc(t) for 0 <= t <= 10.4: a polynomial in (t - 3) / (t + 3), divided by 1 + 2
// t.
NEEDLE_MATH double wide_erfcx(double t) {
  double u = (t - 3.0) / (t + 3.0);
  double p = 3.2822208752533464e-5;
  p = p * u + 0.00012585881917400737;
  p = p * u - 0.0001274269417978125;
  p = p * u - 0.00078976428094870307;
  p = p * u + 0.0018948129434874113;
  p = p * u + 0.0025336275532421081;
  p = p * u - 0.023771179220786608;
  p = p * u + 0.068307331908205625;
  p = p * u - 0.11927364142776219;
  p = p * u + 0.12964520455357457;
  p = p * u - 0.047562294293724611;
  p = p * u - 0.13562110697845708;
  p = p * u + 1.2530080582687269;
  return p / (1.0 + 2.0 * t);
}

// Returns the standard normal distribution function at -a, a >= 0; float rounds it to 0 from 14.5
// on.
NEEDLE_MATH double wide_normal_tail(double a) {
  double t = (a > 14.7 ? 14.7 : a) * 0.70710678118654752;
  return 0.5 * wide_erfcx(t) * wide_exp(-0.5 * (a * a));
}

// ---- functions of one element; a few ulp for double, NaN for NaN ----

NEEDLE_MATH float expm1(float x) { return x == 0.0f ? x : float(wide_expm1(x)); }
NEEDLE_MATH double expm1(double x) { return std::expm1(x); }
NEEDLE_MATH float log1p(float x) { return x == 0.0f ? x : float(wide_log1p(x)); }
NEEDLE_MATH double log1p(double x) { return std::log1p(x); }
NEEDLE_MATH float log2(float x) { return float(wide_log(x) * 1.4426950408889634); }
NEEDLE_MATH double log2(double x) { return std::log2(x); }
NEEDLE_MATH float log10(float x) { return float(wide_log(x) * 0.4342944819032518); }
NEEDLE_MATH double log10(double x) { return std::log10(x); }

NEEDLE_MATH float sinh(float x) {
  double grown = wide_expm1(std::fabs(x));
  float result = float(0.5 * (grown + grown / (grown + 1.0)));
  return std::copysign(result, x);
}
NEEDLE_MATH double sinh(double x) { return std::sinh(x); }
NEEDLE_MATH float cosh(float x) {
  double e = wide_exp(std::fabs(x));
  return float(0.5 * (e + 1.0 / e));
}
NEEDLE_MATH double cosh(double x) { return std::cosh(x); }

NEEDLE_MATH float asinh(float x) {  // log(a + sqrt(a*a + 1)), 1 taken out of the logarithm
  double a = std::fabs(x), square = a * a;
  float result = float(wide_log1p(a + square / (1.0 + std::sqrt(square + 1.0))));
  return std::copysign(a < std::numeric_limits<double>::infinity() ? result : float(a), x);
}
NEEDLE_MATH double asinh(double x) { return std::asinh(x); }
NEEDLE_MATH float acosh(float x) {
  double d = double(x) - 1.0;
  float result = float(wide_log1p(d + std::sqrt(d * (d + 2.0))));
  return x < 1.0f ? std::numeric_limits<float>::quiet_NaN() : result;
}
NEEDLE_MATH double acosh(double x) { return std::acosh(x); }
NEEDLE_MATH float atanh(float x) {
  double a = std::fabs(x);
  return std::copysign(float(0.5 * wide_log1p(2.0 * a / (1.0 - a))), x);
}
NEEDLE_MATH double atanh(double x) { return std::atanh(x); }

// Returns 1 / (1 + e^-x); for x < 0 as e^x / (1 + e^x), which is accurate where e^x is small.
NEEDLE_MATH double wide_sigmoid(double x) {
  double t = wide_exp(-std::fabs(x));
  return (x < 0.0 ? t : 1.0) / (1.0 + t);
}
NEEDLE_MATH float sigmoid(float x) { return float(wide_sigmoid(x)); }
NEEDLE_MATH double sigmoid(double x) {
  double t = std::exp(-std::fabs(x));
  return (x < 0.0 ? t : 1.0) / (1.0 + t);
}

// log(1 + e^x)
NEEDLE_MATH float softplus(float x) {
  return float((x > 0.0f ? double(x) : 0.0) + wide_log1p_unit(wide_exp(-std::fabs(x))));
}
NEEDLE_MATH double softplus(double x) {
  return (x > 0.0 ? x : 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

// log(sigmoid(x)) = -log(1 + e^-x); 0, not -0, where it underflows
NEEDLE_MATH float log_sigmoid(float x) {
  return float((x < 0.0f ? double(x) : 0.0) - wide_log1p_unit(wide_exp(-std::fabs(x)))) + 0.0f;
}
NEEDLE_MATH double log_sigmoid(double x) {
  return (x < 0.0 ? x : 0.0) - std::log1p(std::exp(-std::fabs(x)));
}

NEEDLE_MATH float silu(float x) { return float(x * wide_sigmoid(x)); }
NEEDLE_MATH double silu(double x) {
  double half = std::exp(-0.5 * std::fabs(x));  // its square may be subnormal, x times it is not
  double t = half * half;
  return (x < 0.0 ? x * half * half : x) / (1.0 + t);
}

// Returns factor times the standard normal distribution function at -a, a >= 0. In e^(-a*a/2), a is
// split at its nearest multiple of 1/16, whose square is exact (Cody 1969). The factor comes first,
// so that the product is not rounded to a subnormal number twice.
NEEDLE_MATH double normal_tail(double factor, double a) {
  const double magic = 422212465065984.0;  // 1.5 * 2^48: adding it rounds to a multiple of 1/16
  double head = (a + magic) - magic, root = std::exp(-0.25 * head * head);
  double t = a * 0.70710678118654752, u = (t - 3.0) / (t + 3.0);
  double p = -3.9810282894536325e-9;
  p = p * u - 7.9921408243152386e-9;
  p = p * u + 3.2431391451395867e-8;
  p = p * u + 9.0157641652707701e-8;
  p = p * u - 1.3095639137324552e-7;
  p = p * u - 6.0255256956728901e-7;
  p = p * u + 3.494419955627178e-7;
  p = p * u + 3.4620215324911329e-6;
  p = p * u - 7.2820084305182239e-7;
  p = p * u - 2.0095652743439783e-5;
  p = p * u + 4.9485109074707733e-6;
  p = p * u + 0.00012509784493657835;
  p = p * u - 0.00010515961059899975;
  p = p * u - 0.00077983197729883681;
  p = p * u + 0.0018886903351695904;
  p = p * u + 0.0025293917810001668;
  p = p * u - 0.023770514916731507;
  p = p * u + 0.068308027346289137;
  p = p * u - 0.11927366341539409;
  p = p * u + 0.12964515870269048;
  p = p * u - 0.047562294353449142;
  p = p * u - 0.13562110612458054;
  p = p * u + 1.2530080582697296;
  double scaled = factor * (0.5 * p / (1.0 + 2.0 * t));
  double result = scaled * std::exp(-0.5 * (a - head) * (a + head)) * root * root;
  return a > 40.0 ? factor * 0.0 : result;
}

// The standard normal distribution function.
NEEDLE_MATH float normal_cdf(float x) {
  double tail = wide_normal_tail(std::fabs(x));
  return float(x < 0.0f ? tail : 1.0 - tail);
}
NEEDLE_MATH double normal_cdf(double x) {
  double tail = normal_tail(1.0, std::fabs(x));
  return x < 0.0 ? tail : 1.0 - tail;
}
NEEDLE_MATH float gelu(float x) {
  double tail = wide_normal_tail(std::fabs(x));
  return float(x * (x < 0.0f ? tail : 1.0 - tail));
}
NEEDLE_MATH double gelu(double x) {
  return x < 0.0 ? normal_tail(x, -x) : x * (1.0 - normal_tail(1.0, x));
}

// The derivative of gelu, Phi(x) + x phi(x). Both terms contain e^(-x*x/2), which float rounds to 0
// from 14.5 on.
NEEDLE_MATH float gelu_slope(float x) {
  double a = limited(std::fabs(double(x)), 14.7), e = wide_exp(-0.5 * (a * a));
  double rest = e * (0.5 * wide_erfcx(a * 0.70710678118654752) - 0.3989422804014327 * a);
  return float(x < 0.0f ? rest : 1.0 - rest);
}
NEEDLE_MATH double gelu_slope(double x) {
  const double magic = 422212465065984.0;  // as in normal_tail
  double a = limited(std::fabs(x), 40.0), head = (a + magic) - magic;
  double root = std::exp(-0.25 * head * head), tail = normal_tail(1.0, a);
  double term = 0.3989422804014327 * a * std::exp(-0.5 * (a - head) * (a + head)) * root * root;
  return x < 0.0 ? tail - term : (1.0 - tail) + term;
}

// x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)), which is x / 2 (1 + tanh(...)).
NEEDLE_MATH float gelu_tanh(float x) {
  double a = x;
  return float(a * wide_sigmoid(1.5957691216057308 * (a + 0.044715 * (a * a * a))));
}
// Two factors of e^-v, where v = 2 sqrt(2 / pi) (a + 0.044715 a^3) and 0 <= a <= 24. v is
// split at `head`, the multiple of 1/16 nearest to a, and the coefficients are split after 26 bits,
// so that products of the upper parts are exact.
struct Factors {
  double most, last;
};
NEEDLE_MATH Factors gelu_tanh_factors(double a) {
  double head = std::floor(a * 16.0 + 0.5) / 16.0, cube = head * head * head;
  double slope = 1.5957691216057308 + 0.07135481627260025 * (a * a + a * head + head * head);
  double rest = (a - head) * slope + (1.426396435433791e-08 * head + 5.361872467621785e-10 * cube);
  return {std::exp(-1.5957691073417664 * head) * std::exp(-rest),
          std::exp(-0.071354815736413 * cube)};
}
NEEDLE_MATH double gelu_tanh(double x) {
  Factors e = gelu_tanh_factors(limited(std::fabs(x), 24.0));
  return (x < 0.0 ? x * e.most * e.last : x) / (1.0 + e.most * e.last);
}

// The derivative of gelu_tanh, s + x s (1 - s) v' with s = sigmoid(v), as s (1 + x v' (1 - s)); the
// smaller of s and 1 - s is e^-|v| / (1 + e^-|v|).
NEEDLE_MATH float gelu_tanh_slope(float x) {
  double a = limited(std::fabs(double(x)), 24.0), square = a * a;
  double e = wide_exp(-1.5957691216057308 * (a + 0.044715 * (square * a))), above = 1.0 + e;
  double step = a * (1.5957691216057308 + 0.21406444881780076 * square);
  return float(x < 0.0f ? e * (1.0 - step / above) / above : (1.0 + step * e / above) / above);
}
NEEDLE_MATH double gelu_tanh_slope(double x) {
  double a = limited(std::fabs(x), 24.0);
  Factors e = gelu_tanh_factors(a);
  double above = 1.0 + e.most * e.last;
  double step = a * (1.5957691216057308 + 0.21406444881780076 * (a * a));
  double below = e.most * (1.0 - step / above) * e.last;
  return (x < 0.0 ? below : 1.0 + step * e.most * e.last / above) / above;
}

}  // namespace needle::math
