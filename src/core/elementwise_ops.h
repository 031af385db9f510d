// Trail 10 of 30: one formula per operation, which all targets compile.
// Next: src/core/loop.h

// The elementwise operations, one row each: name, the dtypes it takes, the dtype of its result, and
// its formula. The formula is written once, for one element x (and y) of type T; the vector loops,
// the scalar tails and other targets all compile this expression. The functions of namespace math
// are in scalar_math.h. The names in UNARY and BINARY of python/needle/backends/base.py are
// required of every backend; other rows have a definition in python/needle/accelerated
// (elementwise).
#pragma once

#include <cstdint>

namespace needle {

// The operands' dtypes: floats; numbers (not bool); integers and bool; any dtype.
enum class Domain : std::uint8_t { kFloat, kNumber, kInteger, kAny };
// The dtype of the result: the operands' dtype, or bool.
enum class Result : std::uint8_t { kSame, kBool };

//  ROW(name, domain, result, formula of x)
#define NEEDLE_UNARY_OPS(ROW)                                   \
  ROW(exp, kFloat, kSame, math::exp(x))                         \
  ROW(expm1, kFloat, kSame, math::expm1(x))                     \
  ROW(log, kFloat, kSame, math::log(x))                         \
  ROW(log1p, kFloat, kSame, math::log1p(x))                     \
  ROW(log2, kFloat, kSame, math::log2(x))                       \
  ROW(log10, kFloat, kSame, math::log10(x))                     \
  ROW(sqrt, kFloat, kSame, std::sqrt(x))                        \
  ROW(sin, kFloat, kSame, std::sin(x))                          \
  ROW(cos, kFloat, kSame, std::cos(x))                          \
  ROW(tan, kFloat, kSame, math::tan(x))                         \
  ROW(asin, kFloat, kSame, std::asin(x))                        \
  ROW(acos, kFloat, kSame, std::acos(x))                        \
  ROW(atan, kFloat, kSame, std::atan(x))                        \
  ROW(sinh, kFloat, kSame, math::sinh(x))                       \
  ROW(cosh, kFloat, kSame, math::cosh(x))                       \
  ROW(tanh, kFloat, kSame, math::tanh(x))                       \
  ROW(asinh, kFloat, kSame, math::asinh(x))                     \
  ROW(acosh, kFloat, kSame, math::acosh(x))                     \
  ROW(atanh, kFloat, kSame, math::atanh(x))                     \
  ROW(erf, kFloat, kSame, math::erf(x))                         \
  ROW(sigmoid, kFloat, kSame, math::sigmoid(x))                 \
  ROW(log_sigmoid, kFloat, kSame, math::log_sigmoid(x))         \
  ROW(softplus, kFloat, kSame, math::softplus(x))               \
  ROW(silu, kFloat, kSame, math::silu(x))                       \
  ROW(normal_cdf, kFloat, kSame, math::normal_cdf(x))           \
  ROW(gelu, kFloat, kSame, math::gelu(x))                       \
  ROW(gelu_tanh, kFloat, kSame, math::gelu_tanh(x))             \
  ROW(gelu_slope, kFloat, kSame, math::gelu_slope(x))           \
  ROW(gelu_tanh_slope, kFloat, kSame, math::gelu_tanh_slope(x)) \
  ROW(floor, kFloat, kSame, std::floor(x))                      \
  ROW(ceil, kFloat, kSame, std::ceil(x))                        \
  ROW(trunc, kFloat, kSame, std::trunc(x))                      \
  ROW(round, kFloat, kSame, std::rint(x))                       \
  ROW(negative, kNumber, kSame, math::negative(x))              \
  ROW(abs, kNumber, kSame, math::abs(x))                        \
  ROW(sign, kNumber, kSame, math::sign(x))                      \
  ROW(square, kNumber, kSame, math::multiply(x, x))             \
  ROW(isnan, kFloat, kBool, x != x)                             \
  ROW(isinf, kFloat, kBool, math::is_infinite(x))               \
  ROW(isfinite, kFloat, kBool, math::is_finite(x))              \
  ROW(logical_not, kAny, kBool, x == T(0))                      \
  ROW(bitwise_invert, kInteger, kSame, math::invert(x))

//  ROW(name, domain, result, formula of x and y)
#define NEEDLE_BINARY_OPS(ROW)                                \
  ROW(add, kNumber, kSame, math::add(x, y))                   \
  ROW(subtract, kNumber, kSame, math::subtract(x, y))         \
  ROW(multiply, kNumber, kSame, math::multiply(x, y))         \
  ROW(divide, kFloat, kSame, x / y)                           \
  ROW(floor_divide, kNumber, kSame, math::floor_divide(x, y)) \
  ROW(remainder, kNumber, kSame, math::remainder(x, y))       \
  ROW(power, kNumber, kSame, math::power(x, y))               \
  ROW(maximum, kNumber, kSame, math::maximum(x, y))           \
  ROW(minimum, kNumber, kSame, math::minimum(x, y))           \
  ROW(atan2, kFloat, kSame, math::atan2(x, y))                \
  ROW(bitwise_and, kInteger, kSame, x& y)                     \
  ROW(bitwise_or, kInteger, kSame, x | y)                     \
  ROW(bitwise_xor, kInteger, kSame, x ^ y)                    \
  ROW(logical_and, kAny, kBool, (x != T(0)) & (y != T(0)))    \
  ROW(logical_or, kAny, kBool, (x != T(0)) | (y != T(0)))     \
  ROW(logical_xor, kAny, kBool, (x != T(0)) != (y != T(0)))   \
  ROW(equal, kAny, kBool, x == y)                             \
  ROW(not_equal, kAny, kBool, x != y)                         \
  ROW(less, kAny, kBool, x < y)                               \
  ROW(less_equal, kAny, kBool, x <= y)                        \
  ROW(greater, kAny, kBool, x > y)                            \
  ROW(greater_equal, kAny, kBool, x >= y)

enum class UnaryOp : std::uint8_t {
#define NEEDLE_ROW(name, domain, result, formula) name,
  NEEDLE_UNARY_OPS(NEEDLE_ROW)
};

enum class BinaryOp : std::uint8_t { NEEDLE_BINARY_OPS(NEEDLE_ROW) };
#undef NEEDLE_ROW

inline constexpr const char* kUnaryNames[] = {
#define NEEDLE_ROW(name, domain, result, formula) #name,
    NEEDLE_UNARY_OPS(NEEDLE_ROW)};

inline constexpr const char* kBinaryNames[] = {NEEDLE_BINARY_OPS(NEEDLE_ROW)};
#undef NEEDLE_ROW

}  // namespace needle
