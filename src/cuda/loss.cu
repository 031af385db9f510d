// Cross entropy of logits (N, C) with integer labels, and its gradient. A warp (a block if C is
// large) processes a row: the maximum, the sum of exponentials, then the gradient or the loss, so
// no array of the softmax's size is written. The GPU cannot raise an error for a label outside [0,
// C): its loss and gradient are NaN, and with NEEDLE_CUDA_SYNC, which waits for launches, it is an
// error.
#include <vector>

#include "core/view_rules.h"
#include "kernels.h"
#include "row_exp.h"
#include "transfer.h"

namespace needle::cuda {
namespace {

template <class T>
struct Loss {
  std::uint32_t rows, classes;
  const T *logits, *grad;
  const std::int64_t* labels;
  T* out;
  std::int64_t logits_row, logits_step, grad_step, label_step, out_row, out_step;  // in elements
  T smoothing, even;                                                               // even: s / C

  __device__ Row<const T> row(std::uint32_t i) const {
    return {logits + i * logits_row, logits_step, classes};
  }
  __device__ std::int64_t label(std::uint32_t row) const { return labels[row * label_step]; }
  __device__ bool knows(std::int64_t label) const { return label >= 0 && label < classes; }
};

// loss = -(1 - s) logp[label] - s / C sum(logp), with logp = logits - highest - log_total. A term
// whose factor is 0 is omitted, even if logp is infinite.
template <class T, int kLanes>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_kernel(const __grid_constant__ Loss<T> call) {
  NEEDLE_SHARED(warps, T[kRowThreads / kWarp]);
  const RowLanes<T, kLanes> lanes(warps);
  if (lanes.row >= call.rows) return;
  const Row<const T> a = call.row(lanes.row);
  const T highest = largest(lanes, a), log_total = math::log(exp_sum(lanes, a, highest));
  T sum = T(0);
  if (call.smoothing != T(0)) {
    sum = lanes.sum_of(a.n, [&](std::uint32_t i) { return a[i] - highest; });
  }
  if (lanes.lane != 0) return;
  const std::int64_t label = call.label(lanes.row);
  T loss = T(0);
  if (call.smoothing != T(0)) loss = call.even * (T(a.n) * log_total - sum);
  if (call.smoothing != T(1)) {
    const T at_label = call.knows(label) ? a[label] : std::numeric_limits<T>::quiet_NaN();
    loss -= (T(1) - call.smoothing) * ((at_label - highest) - log_total);
  }
  call.out[lanes.row * call.out_row] = loss;
}

// out = grad * (softmax - q)
template <class T, int kLanes>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_grad_kernel(const __grid_constant__ Loss<T> call) {
  NEEDLE_SHARED(warps, T[kRowThreads / kWarp]);
  const RowLanes<T, kLanes> lanes(warps);
  if (lanes.row >= call.rows) return;
  const Row<const T> a = call.row(lanes.row);
  const Row<T> out{call.out + lanes.row * call.out_row, call.out_step, a.n};
  const T highest = largest(lanes, a), scale = T(1) / exp_sum(lanes, a, highest);
  const std::int64_t label = call.label(lanes.row);
  const T grad = call.knows(label) ? call.grad[lanes.row * call.grad_step]
                                   : std::numeric_limits<T>::quiet_NaN();
  stream<T>(
      lanes.lane, a.n, kLanes, [&](std::uint32_t i) { return a[i]; },
      [&](std::uint32_t i, T x) {
        const T less = math::exp(x - highest) * scale - call.even;
        out[i] = grad * (i == label ? less - (T(1) - call.smoothing) : less);
      });
}

template <class T>
Loss<T> loss_of(const char* op, In logits, In labels, Out out, double smoothing) {
  check_count(op, logits.shape[0]);
  check_count(op, logits.shape[1]);
  Loss<T> call{};
  call.rows = static_cast<std::uint32_t>(logits.shape[0]);
  call.classes = static_cast<std::uint32_t>(logits.shape[1]);
  call.logits = data_of<const T>(logits);
  call.labels = data_of<const std::int64_t>(labels);
  call.out = data_of<T>(out);
  call.logits_row = logits.strides[0], call.logits_step = logits.strides[1];
  call.label_step = labels.strides[0];
  call.out_row = out.strides[0];
  call.smoothing = T(smoothing);
  call.even = T(smoothing / double(logits.shape[1]));
  return call;
}

void check_labels(const char* op, In logits, In labels) {
  if (!synchronous()) return;
  std::vector<std::int64_t> values(static_cast<std::size_t>(labels.shape[0]));
  download(labels, values.data());
  View here = labels;
  here.data = values.data();
  here.strides[0] = 1;
  check_labels_in_range(op, here, logits.shape[1]);
}

}  // namespace

void cross_entropy(In logits, In labels, Out out, double smoothing) {
  if (logits.shape[0] == 0) return;
  check_labels("cross_entropy", logits, labels);
  with_float(logits.dtype, [&]<class T>(Tag<T>) {
    const auto call = loss_of<T>("cross_entropy", logits, labels, out, smoothing);
    launch_rows("cross_entropy", out.device, call.rows, call.classes,
                cross_entropy_kernel<T, kWarp>, cross_entropy_kernel<T, kRowThreads>, call);
  });
}

void cross_entropy_grad(In grad, In logits, In labels, Out out, double smoothing) {
  if (size_of(out) == 0) return;
  check_labels("cross_entropy_grad", logits, labels);
  with_float(logits.dtype, [&]<class T>(Tag<T>) {
    auto call = loss_of<T>("cross_entropy_grad", logits, labels, out, smoothing);
    call.grad = data_of<const T>(grad);
    call.grad_step = grad.strides[0];
    call.out_step = out.strides[1];
    launch_rows("cross_entropy_grad", out.device, call.rows, call.classes,
                cross_entropy_grad_kernel<T, kWarp>, cross_entropy_grad_kernel<T, kRowThreads>,
                call);
  });
}

}  // namespace needle::cuda
