// Trail 12 of 30: the loops around the formulas: contiguous, scalar operand, strided.
// Next: src/cpu/gemm.h

// The kernels unary, binary and where. Each makes a loop plan and runs one of a few loops
// (contiguous, one scalar operand, strided) of the same formula on each innermost run.
#include <cmath>

#include "core/elementwise_formulas.h"
#include "core/loop.h"
#include "core/not_implemented.h"
#include "core/scratch.h"
#include "core/simd.h"
#include "core/view_rules.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// True for operations that may add a bias to channels or scale them.
template <class Op>
constexpr bool kAffine =
    Op::op == BinaryOp::add || Op::op == BinaryOp::subtract || Op::op == BinaryOp::multiply;
constexpr std::int64_t kRepeated = 1024;  // elements of a long row that replaces several short ones

template <class T>
T& element_at(char* data, std::int64_t byte_offset) {
  return *reinterpret_cast<T*>(data + byte_offset);
}

template <class Op, class T>
void unary_loop(const LoopPlan& plan, std::int64_t grain) {
  /// BEGIN SOLUTION [kernel-unary]
  using R = ResultOf<T, Op::result>;
  const int last = plan.ndim - 1;
  const std::int64_t so = plan.strides[0][last], sa = plan.strides[1][last];
  const bool contiguous = so == sizeof(R) && sa == sizeof(T);
  parallel_runs(plan, grain, [=](std::int64_t n, char* const data[]) {
    if (contiguous) {
      R* out = reinterpret_cast<R*>(data[0]);
      const T* a = reinterpret_cast<const T*>(data[1]);
      NEEDLE_INDEPENDENT
      for (std::int64_t i = 0; i < n; ++i) out[i] = Op::template apply<T>(a[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        element_at<R>(data[0], i * so) = Op::template apply<T>(element_at<T>(data[1], i * sa));
      }
    }
  });
  /// END SOLUTION
}

template <class Op, class T>
void plain_binary_loop(const LoopPlan& plan, std::int64_t grain) {
  using R = ResultOf<T, Op::result>;
  const int last = plan.ndim - 1;
  const std::int64_t so = plan.strides[0][last], sa = plan.strides[1][last],
                     sb = plan.strides[2][last];
  const bool out_dense = so == sizeof(R), a_dense = sa == sizeof(T), b_dense = sb == sizeof(T);
  parallel_runs(plan, grain, [=](std::int64_t n, char* const data[]) {
    R* out = reinterpret_cast<R*>(data[0]);
    const T* a = reinterpret_cast<const T*>(data[1]);
    const T* b = reinterpret_cast<const T*>(data[2]);
    if (out_dense && a_dense && b_dense) {
      NEEDLE_INDEPENDENT
      for (std::int64_t i = 0; i < n; ++i) out[i] = Op::template apply<T>(a[i], b[i]);
    } else if (out_dense && a_dense && sb == 0) {
      const T y = *b;
      NEEDLE_INDEPENDENT
      for (std::int64_t i = 0; i < n; ++i) out[i] = Op::template apply<T>(a[i], y);
    } else if (out_dense && b_dense && sa == 0) {
      const T x = *a;
      NEEDLE_INDEPENDENT
      for (std::int64_t i = 0; i < n; ++i) out[i] = Op::template apply<T>(x, b[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        element_at<R>(data[0], i * so) =
            Op::template apply<T>(element_at<T>(data[1], i * sa), element_at<T>(data[2], i * sb));
      }
    }
  });
}

// Returns true if operand 2 is one short row that repeats for every row of the others, such as a
// bias over channels.
template <class T>
bool repeats_a_row(const LoopPlan& plan) {
  const std::int64_t size = sizeof(T), n = plan.shape[1];
  if (plan.ndim != 2 || 2 * n > kRepeated || plan.shape[0] < 2) return false;
  return plan.strides[2][0] == 0 && plan.strides[2][1] == size && plan.strides[0][1] == size &&
         plan.strides[0][0] == n * size && plan.strides[1][1] == size &&
         plan.strides[1][0] == n * size;
}

// Runs the loop over long rows, each made of several rows of the plan; operand 2 is repeated until
// it fills a long row.
template <class Op, class T>
void repeated_row_loop(const LoopPlan& plan, std::int64_t grain) {
  const std::int64_t n = plan.shape[1], times = kRepeated / n, size = sizeof(T);
  const ThreadScratch scratch(static_cast<std::size_t>(times * n * size));
  T* row = scratch.as<T>();
  for (std::int64_t i = 0; i < times * n; ++i) {
    row[i] = reinterpret_cast<const T*>(plan.data[2])[i % n];
  }
  const auto run = [&](std::int64_t rows, std::int64_t width, std::int64_t first) {
    LoopPlan part = plan;
    part.shape[0] = rows, part.shape[1] = width, part.size = rows * width;
    for (int k = 0; k < 2; ++k) {
      part.strides[k][0] = width * size;
      part.data[k] += first * size;
    }
    part.data[2] = reinterpret_cast<char*>(row);
    if (part.size > 0) plain_binary_loop<Op, T>(part, grain);
  };
  const std::int64_t whole = plan.shape[0] / times, rest = plan.shape[0] % times;
  run(whole, times * n, 0);
  run(1, rest * n, whole * times * n);
}

template <class Op, class T>
void binary_loop(const LoopPlan& plan, std::int64_t grain) {
  if constexpr (std::is_floating_point_v<T> && kAffine<Op>) {
    if (repeats_a_row<T>(plan)) return repeated_row_loop<Op, T>(plan, grain);
  }
  plain_binary_loop<Op, T>(plan, grain);
}

// The number of elements that a thread takes at a time; fewer for operations that take more than
// one or two instructions per element.
template <class T>
constexpr std::int64_t grain_of(UnaryOp op) {
  return op >= UnaryOp::floor || op == UnaryOp::sqrt ? kGrain : kGrain / 8;
}

constexpr std::int64_t grain_of(BinaryOp op) {
  const bool slow = op == BinaryOp::floor_divide || op == BinaryOp::remainder ||
                    op == BinaryOp::power || op == BinaryOp::atan2;
  return slow ? kGrain / 8 : kGrain;
}

template <UnaryOp op>
void unary_typed(DType dtype, DType out, const LoopPlan& plan) {
  if (out != (Unary<op>::result == Result::kBool ? DType::kBool : dtype)) {
    raise_error("unary: out must have the operands' dtype, or bool for a predicate");
  }
  with_type(dtype, [&]<class T>(Tag<T>) {
    if constexpr (allows<T>(Unary<op>::domain)) {
      unary_loop<Unary<op>, T>(plan, grain_of<T>(op));
    } else {
      raise_error("unary: the operation does not take this dtype; convert the operands first");
    }
  });
}

template <BinaryOp op>
void binary_typed(DType dtype, DType out, const LoopPlan& plan) {
  if (out != (Binary<op>::result == Result::kBool ? DType::kBool : dtype)) {
    raise_error("binary: out must have the operands' dtype, or bool for a predicate");
  }
  with_type(dtype, [&]<class T>(Tag<T>) {
    if constexpr (allows<T>(Binary<op>::domain)) {
      binary_loop<Binary<op>, T>(plan, grain_of(op));
    } else {
      raise_error("binary: the operation does not take this dtype; convert the operands first");
    }
  });
}

using Dispatch = void (*)(DType, DType, const LoopPlan&);
constexpr Dispatch kUnary[] = {
#define NEEDLE_ROW(name, domain, result, formula) unary_typed<UnaryOp::name>,
    NEEDLE_UNARY_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
};
constexpr Dispatch kBinary[] = {
#define NEEDLE_ROW(name, domain, result, formula) binary_typed<BinaryOp::name>,
    NEEDLE_BINARY_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
};

// x ** 2 with one exponent for all elements is common and pow is slow, so multiply computes it.
bool is_square(BinaryOp op, const View& y) {
  if (op != BinaryOp::power || size_of(y) == 0) return false;
  for (int i = 0; i < y.ndim; ++i) {
    if (y.strides[i] != 0 && y.shape[i] != 1) return false;
  }
  return (y.dtype == DType::kFloat32 && *data_of<float>(y) == 2.0f) ||
         (y.dtype == DType::kFloat64 && *data_of<double>(y) == 2.0);
}

template <class T>
void where_loop(const LoopPlan& plan) {
  const int last = plan.ndim - 1;
  const std::int64_t so = plan.strides[0][last], sc = plan.strides[1][last],
                     sa = plan.strides[2][last], sb = plan.strides[3][last];
  const bool dense =
      so == sizeof(T) && sc == 1 && (sa == sizeof(T) || sa == 0) && (sb == sizeof(T) || sb == 0);
  parallel_runs(plan, kGrain, [=](std::int64_t n, char* const data[]) {
    T* out = reinterpret_cast<T*>(data[0]);
    // Conditions are read as bytes instead of bool. GCC vectorises a selection by a comparison, but
    // compiles one by a bool to a branch.
    const std::uint8_t* c = reinterpret_cast<const std::uint8_t*>(data[1]);
    const T* a = reinterpret_cast<const T*>(data[2]);
    const T* b = reinterpret_cast<const T*>(data[3]);
    if (dense && sa != 0 && sb != 0) {
      NEEDLE_INDEPENDENT
      for (std::int64_t i = 0; i < n; ++i) {
        const T x = a[i], y = b[i];
        out[i] = c[i] != 0 ? x : y;
      }
    } else if (dense && sa != 0) {
      const T y = *b;
      NEEDLE_INDEPENDENT
      for (std::int64_t i = 0; i < n; ++i) {
        const T x = a[i];
        out[i] = c[i] != 0 ? x : y;
      }
    } else if (dense && sb != 0) {
      const T x = *a;
      NEEDLE_INDEPENDENT
      for (std::int64_t i = 0; i < n; ++i) {
        const T y = b[i];
        out[i] = c[i] != 0 ? x : y;
      }
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        element_at<T>(data[0], i * so) = element_at<bool>(data[1], i * sc)
                                             ? element_at<T>(data[2], i * sa)
                                             : element_at<T>(data[3], i * sb);
      }
    }
  });
}

}  // namespace

void unary(UnaryOp op, In a, Out out) {
  check_same_shape("unary", a, out);
  kUnary[static_cast<int>(op)](a.dtype, out.dtype, make_plan(out, a));
}

void binary(BinaryOp op, In a, In b, Out out) {
  check_same_shape("binary", a, out);
  check_same_shape("binary", b, out);
  check_same_dtype("binary", a, b);
  if (is_square(op, b)) return binary(BinaryOp::multiply, a, a, out);
  kBinary[static_cast<int>(op)](a.dtype, out.dtype, make_plan(out, a, b));
}

void where(In condition, In a, In b, Out out) {
  check_dtype("where", condition, DType::kBool);
  check_same_shape("where", condition, out);
  check_same_shape("where", a, out);
  check_same_shape("where", b, out);
  check_same_dtype("where", a, out);
  check_same_dtype("where", b, out);
  const LoopPlan plan = make_plan(out, condition, a, b);
  with_type(out.dtype, [&]<class T>(Tag<T>) { where_loop<T>(plan); });
}

}  // namespace needle::cpu::NEEDLE_ISA
