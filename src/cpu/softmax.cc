// softmax, log_softmax and logsumexp. Slices along the axis are processed in tiles: if slices are
// contiguous, a tile is one slice and loops run along it; else a tile is a block of adjacent
// slices, and each iteration processes one element of all of them. The maximum is subtracted first,
// so nothing overflows.
#include <cmath>
#include <limits>

#include "core/not_implemented.h"
#include "core/scalar_math.h"
#include "core/scratch.h"
#include "core/thread_pool.h"
#include "kernels.h"
#include "row_exp.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kColumns = 64;
constexpr Index kTaskElements = 1 << 14;

Index grain_for(Index elements) { return kTaskElements / (elements + 1) + 1; }

// ---- one slice, a run of memory ----------------------------------------------------------------

template <class T, bool kLog>
void slice(const T* a, T* out, Index n) {
  /// BEGIN SOLUTION [kernel-softmax]
  const T highest = largest(a, n);
  const T total = exp_sum(a, n, highest, out);
  if constexpr (kLog) {
    const T log_total = math::log(total);
    for (Index i = 0; i < n; ++i) out[i] = (a[i] - highest) - log_total;
  } else {
    const T scale = T(1) / total;
    for (Index i = 0; i < n; ++i) out[i] *= scale;
  }
  /// END SOLUTION
}

template <class T, bool kLog>
void along_runs(const View& a, const View& out, int axis) {
  const Index n = a.shape[axis];
  const View* views[] = {&a, &out};
  const Leading slices = leading_dims(a.ndim, axis, views, 2);
  parallel_for(slices.size, grain_for(n), [&](Index begin, Index end) {
    const Scratch room(static_cast<std::size_t>(2 * n) * sizeof(T));
    T *in_row = room.as<T>(), *out_row = in_row + n;
    slices.each(begin, end, [&](Index, const Index* offsets) {
      const T* from = data_of<const T>(a) + offsets[0];
      T* to = data_of<T>(out) + offsets[1];
      if (a.strides[axis] != 1) {
        for (Index i = 0; i < n; ++i) in_row[i] = from[i * a.strides[axis]];
        from = in_row;
      }
      const bool direct = out.strides[axis] == 1;
      slice<T, kLog>(from, direct ? to : out_row, n);
      if (!direct) {
        for (Index i = 0; i < n; ++i) to[i * out.strides[axis]] = out_row[i];
      }
    });
  });
}

// ---- neighbouring slices -----------------------------------------------------------------------

// Computes `count` adjacent slices. Elements are a_step apart in `a` and out_step apart in `out`.
template <class T, bool kLog>
void columns(const T* a, Index a_step, T* out, Index out_step, Index n, Index count) {
  T highest[kColumns], totals[kColumns] = {};
  for (Index c = 0; c < count; ++c) highest[c] = a[c];
  for (Index i = 1; i < n; ++i) {
    const T* row = a + i * a_step;
    for (Index c = 0; c < count; ++c) highest[c] = row[c] > highest[c] ? row[c] : highest[c];
  }
  for (Index i = 0; i < n; ++i) {
    const T* row = a + i * a_step;
    T* to = out + i * out_step;
    for (Index c = 0; c < count; ++c) {
      const T shifted = row[c] - highest[c], power = math::exp(shifted);
      totals[c] += power;
      to[c] = kLog ? shifted : power;
    }
  }
  for (Index c = 0; c < count; ++c) totals[c] = kLog ? math::log(totals[c]) : T(1) / totals[c];
  for (Index i = 0; i < n; ++i) {
    T* to = out + i * out_step;
    for (Index c = 0; c < count; ++c) to[c] = kLog ? to[c] - totals[c] : to[c] * totals[c];
  }
}

template <class T, bool kLog>
void along_columns(const View& a, const View& out, int axis, Leading slices) {
  const Index n = a.shape[axis], width = slices.shape[slices.ndim - 1];
  const Index blocks = (width + kColumns - 1) / kColumns, outer = slices.size / width;
  --slices.ndim;
  parallel_for(outer * blocks, grain_for(n * kColumns), [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index first = task % blocks * kColumns;
      const Index count = width - first < kColumns ? width - first : kColumns;
      Index position[kMaxDims], offsets[4];
      slices.locate(task / blocks, position, offsets);
      columns<T, kLog>(data_of<const T>(a) + offsets[0] + first, a.strides[axis],
                       data_of<T>(out) + offsets[1] + first, out.strides[axis], n, count);
    }
  });
}

template <class T, bool kLog>
void softmax_typed(const View& a, const View& out, int axis) {
  if (size_of(a) == 0) return;
  const View* views[] = {&a, &out};
  const Leading slices = leading_dims(a.ndim, axis, views, 2);
  const int last = slices.ndim - 1;
  const bool neighbours = last >= 0 && slices.strides[0][last] == 1 && slices.strides[1][last] == 1;
  if (a.strides[axis] != 1 && neighbours) return along_columns<T, kLog>(a, out, axis, slices);
  along_runs<T, kLog>(a, out, axis);
}

// ---- logsumexp ---------------------------------------------------------------------------------

// Computes logsumexp over the runs of `reduced` from `a`; an infinite maximum is not subtracted
// (inf - inf).
template <class T>
T logsumexp_of(const T* a, const Leading& reduced, Index run, Index stride, T* room) {
  T highest = -std::numeric_limits<T>::infinity();
  double total = 0.0;
  const auto each_run = [&](auto&& f) {
    reduced.each(0, reduced.size, [&](Index, const Index* offsets) {
      const T* from = a + offsets[0];
      if (stride != 1) {
        for (Index i = 0; i < run; ++i) room[i] = from[i * stride];
        from = room;
      }
      f(from);
    });
  };
  each_run([&](const T* from) {
    const T best = largest(from, run);
    highest = best > highest || best != best ? best : highest;
  });
  if (!(highest > -std::numeric_limits<T>::infinity() &&
        highest < std::numeric_limits<T>::infinity())) {
    highest = highest != highest ? highest : T(0);
  }
  each_run([&](const T* from) { total += double(exp_sum<T>(from, run, highest, room + run)); });
  return T(std::log(total) + double(highest));
}

template <class T>
void logsumexp_typed(const View& a, const View& out) {
  View kept_in = a, kept_out = out, folded = a;  // sizes of 1 where the other part has the axis
  for (int axis = 0; axis < a.ndim; ++axis) {
    const bool reduced = out.shape[axis] == 1;
    (reduced ? kept_in : folded).shape[axis] = 1;
  }
  const View* kept_views[] = {&kept_in, &kept_out};
  const View* folded_views[] = {&folded};
  const Leading kept = leading_dims(a.ndim, -1, kept_views, 2);
  Leading reduced = leading_dims(a.ndim, -1, folded_views, 1);
  const Index count = reduced.size;
  Index run = 1, stride = 1;
  if (reduced.ndim > 0) {
    --reduced.ndim;
    run = reduced.shape[reduced.ndim];
    stride = reduced.strides[0][reduced.ndim];
    reduced.size = run > 0 ? count / run : 0;
  }
  parallel_for(kept.size, grain_for(count), [&](Index begin, Index end) {
    const Scratch room(static_cast<std::size_t>(2 * run) * sizeof(T));
    kept.each(begin, end, [&](Index, const Index* offsets) {
      data_of<T>(out)[offsets[1]] =
          logsumexp_of(data_of<const T>(a) + offsets[0], reduced, run, stride, room.as<T>());
    });
  });
}

}  // namespace

void softmax(In a, Out out, int axis) {
  with_float(a.dtype, [&]<class T>(Tag<T>) { softmax_typed<T, false>(a, out, axis); });
}

void log_softmax(In a, Out out, int axis) {
  with_float(a.dtype, [&]<class T>(Tag<T>) { softmax_typed<T, true>(a, out, axis); });
}

void logsumexp(In a, Out out) {
  with_float(a.dtype, [&]<class T>(Tag<T>) { logsumexp_typed<T>(a, out); });
}

}  // namespace needle::cpu::NEEDLE_ISA
