// Rows that a warp, or a block if rows are long, processes cooperatively: softmax, cross entropy,
// layer norm. The lanes' loads coalesce to whole cache lines. A block's rows stay in the L1 cache,
// so another pass over them causes no memory traffic.
#pragma once

#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kRowThreads = 256;
constexpr std::int64_t kLongRow = 2048;  // a block processes a row of at least this length
constexpr std::int64_t kShortRow = 16;   // one thread processes a row of at most this length

template <class T>
struct Row {
  T* data;
  std::int64_t stride;  // in elements
  std::uint32_t n;

  __device__ T& operator[](std::uint32_t i) const { return data[i * stride]; }
};

// The kLanes threads that share a row. `warps` is shared memory with one value per warp.
template <class T, int kLanes>
struct RowLanes {
  T* warps;
  std::uint32_t row;
  unsigned lane;

  explicit __device__ RowLanes(T* shared)
      : warps(shared),
        row(blockIdx.x * (kRowThreads / kLanes) + threadIdx.x / kLanes),
        lane(threadIdx.x % kLanes) {}

  // Folds the lanes' values with f; every lane gets the same bits.
  template <class F>
  __device__ T fold(T value, F&& f) const {
    if constexpr (kLanes == 1) return value;
    /// BEGIN SOLUTION [cuda-row-fold]
#pragma unroll
    for (int by = kWarp / 2; by > 0; by /= 2) {
      value = f(value, __shfl_xor_sync(kAllLanes, value, by));
    }
    if constexpr (kLanes > kWarp) {
      __syncthreads();  // another warp may still read the previous fold's values
      if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
      __syncthreads();
      value = warps[0];
      for (int i = 1; i < kLanes / kWarp; ++i) value = f(value, warps[i]);
    }
    return value;
    /// END SOLUTION
  }
  __device__ T sum(T value) const {
    return fold(value, [](T x, T y) { return x + y; });
  }
  // Sums term(i) over the lane's elements, then over all lanes.
  template <class F>
  __device__ T sum_of(std::uint32_t n, F&& term) const {
    T total = T(0);
    stream<T>(lane, n, kLanes, term, [&](std::uint32_t, T x) { total += x; });
    return sum(total);
  }
};

// Launches the kernel with one warp per row, or the one with a block per row.
template <class... Parameters, class... Arguments>
void launch_rows(const char* op, int device, std::uint32_t rows, std::int64_t n,
                 void (*by_warp)(Parameters...), void (*by_block)(Parameters...),
                 Arguments&&... arguments) {
  if (n >= kLongRow) {
    launch(op, device, {rows}, {kRowThreads}, by_block, arguments...);
  } else {
    launch(op, device, {ceil_div<std::uint32_t>(rows, kRowThreads / kWarp)}, {kRowThreads}, by_warp,
           arguments...);
  }
}

inline View without_axis(const View& v, int axis) {
  View rest = v;
  --rest.ndim;
  for (int i = axis; i < rest.ndim; ++i) {
    rest.shape[i] = v.shape[i + 1];
    rest.strides[i] = v.strides[i + 1];
  }
  return rest;
}

// The slices of a view along an axis, and the corresponding slices of the result.
struct Slices {
  Walk slices;  // operand 0: out, 1: a
  std::uint32_t n;
  std::int64_t out_step, a_step;  // along a slice, in elements
  bool alone;                     // short or adjacent slices: each takes one thread

  template <class T>
  __device__ Row<T> out(const Offsets<2>& offsets) const {
    return {reinterpret_cast<T*>(slices.data[0] + offsets.bytes[0]), out_step, n};
  }
  template <class T>
  __device__ Row<const T> a(const Offsets<2>& offsets) const {
    return {reinterpret_cast<const T*>(slices.data[1] + offsets.bytes[1]), a_step, n};
  }
};

inline Slices slices_of(const char* op, const View& a, const View& out, int axis) {
  const View kept_out = without_axis(out, axis), kept_a = without_axis(a, axis);
  const View* views[] = {&kept_out, &kept_a};
  const LoopPlan plan = make_plan(views, 2);
  check_count(op, plan.size);
  check_count(op, a.shape[axis]);
  const bool neighbours = plan.strides[1][plan.ndim - 1] == std::int64_t(size_of(a.dtype));
  const bool alone = a.shape[axis] <= kShortRow || (neighbours && a.strides[axis] != 1);
  return {make_walk(plan, views), static_cast<std::uint32_t>(a.shape[axis]), out.strides[axis],
          a.strides[axis], alone};
}

}  // namespace
}  // namespace needle::cuda
