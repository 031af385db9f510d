// Cross entropy of logits (N, C) with integer labels, and its gradient: one pass over each row
// while it is in the cache. The loss allocates no array of the softmax's size.
#include <cmath>

#include "core/scratch.h"
#include "core/thread_pool.h"
#include "core/view_rules.h"
#include "kernels.h"
#include "row_exp.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kTaskElements = 1 << 14;

// Calls f(row index, the row's logits, scratch for C elements) for each row. The logits are
// contiguous.
template <class T, class F>
void each_row(const View& logits, F&& f) {
  const Index rows = logits.shape[0], n = logits.shape[1], stride = logits.strides[1];
  parallel_for(rows, kTaskElements / (n + 1) + 1, [&](Index begin, Index end) {
    const Scratch scratch(static_cast<std::size_t>(2 * n) * sizeof(T));
    T *room = scratch.as<T>(), *copy = room + n;
    for (Index row = begin; row < end; ++row) {
      const T* from = data_of<const T>(logits) + row * logits.strides[0];
      if (stride != 1) {
        for (Index c = 0; c < n; ++c) copy[c] = from[c * stride];
        from = copy;
      }
      f(row, from, room);
    }
  });
}

Index label_of(const View& labels, Index row) {
  return data_of<const std::int64_t>(labels)[row * labels.strides[0]];
}

// loss = -(1 - s) logp[label] - s / C sum(logp), with logp = logits - highest - log_total. A factor
// of 0 drops its term even where logp is infinite.
template <class T>
void forward(const View& logits, const View& labels, const View& out, double smoothing) {
  const Index n = logits.shape[1];
  each_row<T>(logits, [&](Index row, const T* a, T* room) {
    const T highest = largest(a, n);
    const double log_total = std::log(double(exp_sum(a, n, highest, room)));
    double loss = 0.0;
    if (smoothing != 1.0) {
      loss -= (1.0 - smoothing) * (double(a[label_of(labels, row)] - highest) - log_total);
    }
    if (smoothing != 0.0) {
      double sum[1] = {};
      const Run<T> run{a, 1};
      sum_terms<T>(n, true, sum, [&run, highest](auto v, Index i, auto* sums) {
        sums[0] += run.template get<decltype(v)>(i) - highest;
      });
      loss -= smoothing / double(n) * (sum[0] - double(n) * log_total);
    }
    data_of<T>(out)[row * out.strides[0]] = T(loss);
  });
}

// out = grad * (softmax - q)
template <class T>
void gradient(const View& grad, const View& logits, const View& labels, const View& out,
              double smoothing) {
  const Index n = logits.shape[1], step = out.strides[1];
  each_row<T>(logits, [&](Index row, const T* a, T* room) {
    const T g = data_of<const T>(grad)[row * grad.strides[0]];
    const T scale = T(1) / exp_sum(a, n, largest(a, n), room), even = T(smoothing / double(n));
    T* to = data_of<T>(out) + row * out.strides[0];
    const Index label = label_of(labels, row);
    room[label] = (room[label] * scale - even) - T(1.0 - smoothing);
    const T at_label = g * room[label];
    for (Index c = 0; c < n; ++c) to[c * step] = g * (room[c] * scale - even);
    to[label * step] = at_label;
  });
}

}  // namespace

void cross_entropy(In logits, In labels, Out out, double smoothing) {
  check_labels_in_range("cross_entropy", labels, logits.shape[1]);
  with_float(logits.dtype, [&]<class T>(Tag<T>) { forward<T>(logits, labels, out, smoothing); });
}

void cross_entropy_grad(In grad, In logits, In labels, Out out, double smoothing) {
  check_labels_in_range("cross_entropy_grad", labels, logits.shape[1]);
  with_float(logits.dtype,
             [&]<class T>(Tag<T>) { gradient<T>(grad, logits, labels, out, smoothing); });
}

}  // namespace needle::cpu::NEEDLE_ISA
