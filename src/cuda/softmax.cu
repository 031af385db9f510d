// softmax, log_softmax and logsumexp. In contiguous rows a warp (a block if rows are long) makes
// three passes, for the maximum, the sum and the result; only the first reads memory, the others
// hit the cache. Adjacent slices, and short ones, take one thread each, so that a warp's loads
// coalesce. logsumexp is a reduction (reduce.h) whose partial results are a maximum and a sum
// relative to it.
#include "core/view_rules.h"
#include "reduce.h"
#include "row_exp.h"

namespace needle::cuda {
namespace {

template <class T, bool kLog, int kLanes>
__global__ void __launch_bounds__(kRowThreads) softmax_kernel(const __grid_constant__ Slices s) {
  NEEDLE_SHARED(warps, T[kRowThreads / kWarp]);
  const RowLanes<T, kLanes> lanes(warps);
  if (lanes.row >= s.slices.size) return;
  const auto offsets = locate<2>(s.slices, lanes.row);
  const Row<T> out = s.out<T>(offsets);
  const Row<const T> a = s.a<T>(offsets);
  const T highest = largest(lanes, a), total = exp_sum(lanes, a, highest);
  const T last = kLog ? math::log(total) : T(1) / total;
  stream<T>(
      lanes.lane, s.n, kLanes, [&](std::uint32_t i) { return a[i] - highest; },
      [&](std::uint32_t i, T shifted) {
        out[i] = kLog ? shifted - last : math::exp(shifted) * last;
      });
}

template <class T, bool kLog>
void softmax_typed(In a, Out out, int axis) {
  if (size_of(a) == 0) return;
  const Slices s = slices_of("softmax", a, out, axis);
  if (s.alone) {
    launch("softmax", a.device, {ceil_div(s.slices.size, kRowThreads)}, {kRowThreads},
           softmax_kernel<T, kLog, 1>, s);
  } else {
    launch_rows("softmax", a.device, s.slices.size, s.n, softmax_kernel<T, kLog, kWarp>,
                softmax_kernel<T, kLog, kRowThreads>, s);
  }
}

// ---- logsumexp: sum * exp(highest), or rather exp(0) where the maximum is infinite ----

template <class T>
struct ExpSum {
  T highest, sum;

  ExpSum() = default;
  __device__ ExpSum(T x) : highest(x), sum(x == x ? T(1) : x) {}
  __device__ ExpSum(T x, T total) : highest(x), sum(total) {}
  __device__ ExpSum from_lane_below(int by) const {
    return {__shfl_down_sync(kAllLanes, highest, by), __shfl_down_sync(kAllLanes, sum, by)};
  }
};

template <class T>
struct LogSumExp {
  using Lane = T;
  using Wide = ExpSum<T>;
  static __device__ Wide identity() { return {-std::numeric_limits<T>::infinity(), T(0)}; }
  static __device__ T finite(T x) { return math::is_finite(x) ? x : T(0); }
  static __device__ Wide step(Wide x, Wide y) { return combine(x, y); }
  static __device__ Wide combine(Wide x, Wide y) {
    const T highest = math::maximum(x.highest, y.highest), shift = finite(highest);
    return {highest, x.sum * math::exp(x.highest - shift) + y.sum * math::exp(y.highest - shift)};
  }
  static __device__ T result(Wide x) {
    const bool infinite = x.highest == std::numeric_limits<T>::infinity();
    return infinite ? x.highest * x.sum : math::log(x.sum) + finite(x.highest);
  }
};

}  // namespace

void softmax(In a, Out out, int axis) {
  with_float(a.dtype, [&]<class T>(Tag<T>) { softmax_typed<T, false>(a, out, axis); });
}

void log_softmax(In a, Out out, int axis) {
  with_float(a.dtype, [&]<class T>(Tag<T>) { softmax_typed<T, true>(a, out, axis); });
}

void logsumexp(In a, Out out) {
  const Plan plan = plan_of(a, out);
  if (plan.kept.size == 0) return;
  if (plan.reduced.size == 0) return fill(out, -std::numeric_limits<double>::infinity(), 0);
  with_float(a.dtype, [&]<class T>(Tag<T>) { reduce_typed<LogSumExp<T>>(plan); });
}

}  // namespace needle::cuda
