// The kernel rows unary, binary and where. They apply the formulas of src/core in map.h's kernel.
#include "core/elementwise_formulas.h"
#include "core/view_rules.h"
#include "kernels.h"
#include "map.h"

namespace needle::cuda {
namespace {

// Returns true for operations whose speed is limited by arithmetic rather than by memory.
constexpr bool is_long(UnaryOp op) { return op < UnaryOp::floor && op != UnaryOp::sqrt; }
constexpr bool is_long(BinaryOp op) {
  return op == BinaryOp::floor_divide || op == BinaryOp::remainder || op == BinaryOp::power ||
         op == BinaryOp::atan2;
}

template <class Op, class T>
struct Formula {
  using R = ResultOf<T, Op::result>;
  using V = Computed<T>;
  static constexpr bool kLong = is_long(Op::op);
  static __device__ R apply(V x) { return R(Op::template apply<V>(x)); }
  static __device__ R apply(V x, V y) { return R(Op::template apply<V>(x, y)); }
};

template <class T>
struct Choose {
  static constexpr bool kLong = false;
  using V = Computed<T>;
  static __device__ T apply(bool condition, V x, V y) { return T(condition ? x : y); }
};

template <UnaryOp op>
void unary_typed(In a, Out out) {
  using Op = Unary<op>;
  check_operation<Op>("unary", a.dtype, out.dtype);
  const View* views[] = {&out, &a};
  with_stored_type(a.dtype, [&]<class T>(Tag<T>) {
    if constexpr (allows<Computed<T>>(Op::domain)) {
      map<Formula<Op, T>, ResultOf<T, Op::result>, T>(kUnaryNames[int(op)], make_plan(out, a),
                                                      views);
    }
  });
}

template <BinaryOp op>
void binary_typed(In a, In b, Out out) {
  using Op = Binary<op>;
  check_operation<Op>("binary", a.dtype, out.dtype);
  const View* views[] = {&out, &a, &b};
  with_stored_type(a.dtype, [&]<class T>(Tag<T>) {
    if constexpr (allows<Computed<T>>(Op::domain)) {
      map<Formula<Op, T>, ResultOf<T, Op::result>, T, T>(kBinaryNames[int(op)],
                                                         make_plan(out, a, b), views);
    }
  });
}

constexpr void (*kUnary[])(In, Out) = {
#define NEEDLE_ROW(name, domain, result, formula) unary_typed<UnaryOp::name>,
    NEEDLE_UNARY_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
};
constexpr void (*kBinary[])(In, In, Out) = {
#define NEEDLE_ROW(name, domain, result, formula) binary_typed<BinaryOp::name>,
    NEEDLE_BINARY_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
};

// x ** 2 is common and pow is slow, so multiply computes it.
bool is_square(BinaryOp op, const View& y) {
  if (op != BinaryOp::power || !y.is_scalar) return false;
  return (computed(y.dtype) == DType::kFloat32 && *data_of<float>(y) == 2.0f) ||
         (y.dtype == DType::kFloat64 && *data_of<double>(y) == 2.0);
}

}  // namespace

void unary(UnaryOp op, In a, Out out) {
  check_same_shape("unary", a, out);
  kUnary[static_cast<int>(op)](a, out);
}

void binary(BinaryOp op, In a, In b, Out out) {
  check_same_shape("binary", a, out);
  check_same_shape("binary", b, out);
  check_same_dtype("binary", a, b);
  if (is_square(op, b)) return binary(BinaryOp::multiply, a, a, out);
  kBinary[static_cast<int>(op)](a, b, out);
}

void where(In condition, In a, In b, Out out) {
  check_dtype("where", condition, DType::kBool);
  check_same_shape("where", condition, out);
  check_same_shape("where", a, out);
  check_same_shape("where", b, out);
  check_same_dtype("where", a, out);
  check_same_dtype("where", b, out);
  const View* views[] = {&out, &condition, &a, &b};
  with_stored_type(out.dtype, [&]<class T>(Tag<T>) {
    map<Choose<T>, T, bool, T, T>("where", make_plan(out, condition, a, b), views);
  });
}

}  // namespace needle::cuda
