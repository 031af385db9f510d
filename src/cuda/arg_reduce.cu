// argmax and argmin along one axis: the first of equal elements wins, and NaN wins over all others.
// In contiguous rows a warp scans a row and combines its lanes' winners by shuffles. Adjacent
// slices, and short ones, take one thread each.
#include "kernels.h"
#include "rows.h"

namespace needle::cuda {
namespace {

template <class T>
struct Best {
  T value;
  std::uint32_t place;
};

// Returns true if x replaces the best value so far. An equal value at a smaller index also does,
// which matters when lanes are combined.
template <class T, bool kMax>
__device__ bool wins(const Best<T>& x, const Best<T>& best) {
  const bool x_nan = x.value != x.value, best_nan = best.value != best.value;
  if (x_nan | best_nan) return x_nan & (!best_nan | (x.place < best.place));
  if (x.value == best.value) return x.place < best.place;
  return kMax ? x.value > best.value : x.value < best.value;
}

// kLanes threads of a warp process a slice: all 32 or one.
template <class T, bool kMax, int kLanes>
__global__ void __launch_bounds__(kRowThreads) arg_reduce_kernel(const __grid_constant__ Slices s) {
  const std::uint32_t slice = blockIdx.x * (kRowThreads / kLanes) + threadIdx.x / kLanes;
  const std::uint32_t lane = threadIdx.x % kLanes;
  if (slice >= s.slices.size) return;
  const auto offsets = locate<2>(s.slices, slice);
  const Row<const T> a = s.a<T>(offsets);
  using V = Computed<T>;
  Best<V> best{a[0], 0};
  stream<T>(
      lane, s.n, kLanes, [&](std::uint32_t i) { return a[i]; },
      [&](std::uint32_t i, V x) {
        const Best<V> next{x, i};
        if (wins<V, kMax>(next, best)) best = next;
      });
#pragma unroll
  for (int by = kLanes / 2; by > 0; by /= 2) {
    const Best<V> other{V(__shfl_xor_sync(kAllLanes, best.value, by)),
                        __shfl_xor_sync(kAllLanes, best.place, by)};
    if (wins<V, kMax>(other, best)) best = other;
  }
  if (lane == 0) s.out<std::int64_t>(offsets)[0] = std::int64_t(best.place);
}

template <bool kMax>
void arg_reduce(In a, Out out, int axis) {
  if (size_of(out) == 0) return;
  const char* op = kMax ? "argmax" : "argmin";
  const Slices s = slices_of(op, a, out, axis);
  with_stored_type(a.dtype, [&]<class Given>(Tag<Given>) {
    using T = std::conditional_t<std::is_same_v<Given, bool>, std::uint8_t, Given>;
    const unsigned slices = s.alone ? kRowThreads : kRowThreads / kWarp;  // of a block
    launch(op, a.device, {ceil_div(s.slices.size, slices)}, {kRowThreads},
           s.alone ? arg_reduce_kernel<T, kMax, 1> : arg_reduce_kernel<T, kMax, kWarp>, s);
  });
}

}  // namespace

void argmax(In a, Out out, int axis) { arg_reduce<true>(a, out, axis); }
void argmin(In a, Out out, int axis) { arg_reduce<false>(a, out, axis); }

}  // namespace needle::cuda
