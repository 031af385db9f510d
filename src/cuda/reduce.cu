// The kernel row reduce: the rules of sum, product, maximum and minimum for reduce.h. float32 sums
// accumulate in float64.
#include "reduce.h"

#include <limits>

#include "core/check.h"
#include "core/view_rules.h"

namespace needle::cuda {
namespace {

// ---- how two values combine: `step` in the elements' type, `combine` in that of partial results.
// Integers wrap, so they are unsigned here ----

template <class T>
using WideOf = std::conditional_t<std::is_same_v<Computed<T>, float>, double, T>;

template <class T, class R = T>
struct Sum {
  using Lane = T;
  using Wide = WideOf<T>;
  using V = Computed<T>;
  static __device__ Wide identity() { return Wide(0); }
  static __device__ V step(V x, V y) { return x + y; }
  static __device__ Wide combine(Wide x, Wide y) { return x + y; }
  static __device__ R result(Wide x) { return static_cast<R>(x); }
};

template <class T>
struct Prod {
  using Lane = T;
  using Wide = WideOf<T>;
  using V = Computed<T>;
  static __device__ Wide identity() { return Wide(1); }
  static __device__ V step(V x, V y) { return x * y; }
  static __device__ Wide combine(Wide x, Wide y) { return x * y; }
  static __device__ T result(Wide x) { return static_cast<T>(x); }
};

// NaN differs from itself and wins.
template <class T, bool kMax>
struct Extreme {
  using Lane = T;
  using V = Computed<T>;
  using Wide = std::conditional_t<sizeof(T) == 1, int, V>;
  static __device__ Wide identity() {
    using Limits = std::numeric_limits<V>;
    if constexpr (Limits::has_infinity) return kMax ? -Limits::infinity() : Limits::infinity();
    return kMax ? Limits::lowest() : Limits::max();
  }
  template <class U>
  static __device__ U better(U x, U y) {
    if constexpr (kMax) return ((y > x) | (y != y)) ? y : x;
    return ((y < x) | (y != y)) ? y : x;
  }
  static __device__ V step(V x, V y) { return better(x, y); }
  static __device__ Wide combine(Wide x, Wide y) { return better(x, y); }
  static __device__ T result(Wide x) { return static_cast<T>(x); }
};

[[noreturn]] void refuse() {
  raise_error("reduce: the operation does not take this dtype; convert the operand first");
}

void fill_empty(ReduceOp op, Out out) {
  const int one = op == ReduceOp::prod || op == ReduceOp::all;
  fill(out, one, one);
}

}  // namespace

void reduce(ReduceOp op, In a, Out out) {
  check_reduced_shape("reduce", a, out);
  const bool rounds = a.dtype == computed(out.dtype) && a.dtype != out.dtype;  // partial sums
  if (!rounds) check_same_dtype("reduce", a, out);
  const Plan plan = plan_of(a, out);
  const bool logical = op == ReduceOp::any || op == ReduceOp::all;
  if (logical != (a.dtype == DType::kBool)) refuse();
  if (plan.kept.size == 0) return;
  if (plan.reduced.size == 0) return fill_empty(op, out);
  if (rounds) {
    if (op != ReduceOp::sum) refuse();
    return reduce_typed<Sum<float, BFloat16>>(plan);
  }
  with_stored_type(a.dtype, [&]<class T>(Tag<T>) {
    using Byte = std::uint8_t;  // as which bool compares
    using V = std::conditional_t<std::is_same_v<T, bool>, Byte, T>;
    if (op == ReduceOp::max || op == ReduceOp::any) return reduce_typed<Extreme<V, true>>(plan);
    if (op == ReduceOp::min || op == ReduceOp::all) return reduce_typed<Extreme<V, false>>(plan);
    if constexpr (sizeof(T) > 1) {
      using U = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                            std::type_identity<T>>::type;
      if (op == ReduceOp::sum) return reduce_typed<Sum<U>>(plan);
      if (op == ReduceOp::prod) return reduce_typed<Prod<U>>(plan);
    }
    refuse();
  });
}

}  // namespace needle::cuda
