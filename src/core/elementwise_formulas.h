// The rows of elementwise_ops.h as types: Unary<op> and Binary<op> have the operation's domain, its
// result dtype and its formula as a function of elements. CPU loops and CUDA kernels are templates
// on these types. They are in an anonymous namespace, because objects compiled for different
// instruction sets must share no code.
#pragma once

#include <cmath>
#include <string>
#include <type_traits>

#include "check.h"
#include "dtype.h"
#include "elementwise_ops.h"
#include "wide_math.h"

namespace needle {
namespace {

template <class T>
constexpr bool allows(Domain domain) {
  if (domain == Domain::kFloat) return std::is_floating_point_v<T>;
  if (domain == Domain::kNumber) return !std::is_same_v<T, bool>;
  if (domain == Domain::kInteger) return !std::is_floating_point_v<T>;
  return true;
}

template <class T, Result result>
using ResultOf = std::conditional_t<result == Result::kBool, bool, T>;

// Throws Error unless the operation Op takes operands of `dtype` and results of dtype `out`.
template <class Op>
void check_operation(const char* row, DType dtype, DType out) {
  if (out != (Op::result == Result::kBool ? DType::kBool : dtype)) {
    raise_error(std::string(row) + ": out must have the operands' dtype, or bool for a predicate");
  }
  if (!with_stored_type(dtype, []<class T>(Tag<T>) { return allows<Computed<T>>(Op::domain); })) {
    raise_error(std::string(row) +
                ": the operation does not take this dtype; convert the operands first");
  }
}

template <UnaryOp op>
struct Unary;
template <BinaryOp op>
struct Binary;

#define NEEDLE_ROW(name, domain_, result_, formula)           \
  template <>                                                 \
  struct Unary<UnaryOp::name> {                               \
    static constexpr UnaryOp op = UnaryOp::name;              \
    static constexpr Domain domain = Domain::domain_;         \
    static constexpr Result result = Result::result_;         \
    template <class T>                                        \
    [[gnu::always_inline]] static NEEDLE_HD auto apply(T x) { \
      return static_cast<ResultOf<T, result>>(formula);       \
    }                                                         \
  };
NEEDLE_UNARY_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW

#define NEEDLE_ROW(name, domain_, result_, formula)                \
  template <>                                                      \
  struct Binary<BinaryOp::name> {                                  \
    static constexpr BinaryOp op = BinaryOp::name;                 \
    static constexpr Domain domain = Domain::domain_;              \
    static constexpr Result result = Result::result_;              \
    template <class T>                                             \
    [[gnu::always_inline]] static NEEDLE_HD auto apply(T x, T y) { \
      return static_cast<ResultOf<T, result>>(formula);            \
    }                                                              \
  };
NEEDLE_BINARY_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW

}  // namespace
}  // namespace needle
