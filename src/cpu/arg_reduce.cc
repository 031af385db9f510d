// argmax and argmin along one axis: the first of equal elements wins, and NaN wins over all others.
// Adjacent slices are scanned together in blocks, other slices one by one.
#include "core/not_implemented.h"
#include "core/thread_pool.h"
#include "kernels.h"
#include "runs.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kColumns = 64;
constexpr Index kTaskElements = 1 << 14;

struct Greater {
  template <class T>
  static bool better(T x, T y) {
    return x > y;
  }
};

struct Less {
  template <class T>
  static bool better(T x, T y) {
    return x < y;
  }
};

// Returns true if x replaces the best value so far; the first NaN is kept.
template <class Order, class T>
[[gnu::always_inline]] inline bool wins(T x, T best) {
  if constexpr (std::is_floating_point_v<T>) {
    return Order::better(x, best) | ((x != x) & (best == best));
  } else {
    return Order::better(x, best);
  }
}

template <class Order, class T>
Index scan(const T* a, Index step, Index n) {
  T best = a[0];
  Index place = 0;
  for (Index i = 1; i < n; ++i) {
    if (wins<Order>(a[i * step], best)) {
      best = a[i * step];
      place = i;
    }
  }
  return place;
}

// Scans `count` adjacent slices.
template <class Order, class T>
void scan_columns(const T* a, Index step, Index n, Index count, std::int64_t* places) {
  /// BEGIN SOLUTION [kernel-argmax]
  T best[kColumns];
  for (Index c = 0; c < count; ++c) {
    best[c] = a[c];
    places[c] = 0;
  }
  for (Index i = 1; i < n; ++i) {
    const T* row = a + i * step;
    for (Index c = 0; c < count; ++c) {
      const bool better = wins<Order>(row[c], best[c]);
      best[c] = better ? row[c] : best[c];
      places[c] = better ? i : places[c];
    }
  }
  /// END SOLUTION
}

template <class Order, class T>
void arg_reduce(const View& a, const View& out, int axis) {
  const Index n = a.shape[axis], step = a.strides[axis];
  const View* views[] = {&a, &out};
  Leading slices = leading_dims(a.ndim, axis, views, 2);
  if (slices.size == 0) return;
  Index width = 1, a_step = 1, out_step = 1;
  if (slices.ndim > 0) {  // the innermost dimension is walked in blocks
    const int last = --slices.ndim;
    width = slices.shape[last];
    a_step = slices.strides[0][last];
    out_step = slices.strides[1][last];
  }
  const bool together = a_step == 1 && step != 1;
  const Index blocks = (width + kColumns - 1) / kColumns, outer = slices.size / width;
  parallel_for(outer * blocks, kTaskElements / (n * kColumns) + 1, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index first = task % blocks * kColumns;
      const Index count = width - first < kColumns ? width - first : kColumns;
      Index position[kMaxDims], offsets[4];
      slices.locate(task / blocks, position, offsets);
      const T* from = data_of<const T>(a) + offsets[0] + first * a_step;
      std::int64_t* to = data_of<std::int64_t>(out) + offsets[1] + first * out_step;
      std::int64_t places[kColumns];
      if (together) {
        scan_columns<Order>(from, step, n, count, places);
      } else {
        for (Index c = 0; c < count; ++c) places[c] = scan<Order>(from + c * a_step, step, n);
      }
      for (Index c = 0; c < count; ++c) to[c * out_step] = places[c];
    }
  });
}

}  // namespace

void argmax(In a, Out out, int axis) {
  with_type(a.dtype, [&]<class T>(Tag<T>) { arg_reduce<Greater, T>(a, out, axis); });
}

void argmin(In a, Out out, int axis) {
  with_type(a.dtype, [&]<class T>(Tag<T>) { arg_reduce<Less, T>(a, out, axis); });
}

}  // namespace needle::cpu::NEEDLE_ISA
