// The kernel rows apply_epilogue and relu_grad. apply_epilogue computes relu(a + bias), with the
// bias along the last axis. relu_grad computes relu's gradient and, in the same pass, its sums over
// all other axes, which are the bias's gradient. Layouts, chunks of rows and the order of sums are
// those of batch norm (batch_norm.h).
#include "batch_norm.h"
#include "core/loop.h"
#include "core/scalar_math.h"
#include "core/simd.h"
#include "kernels.h"
#include "map_runs.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

template <class T>
void bias_relu(In a_view, In bias, Out out) {
  const RowMajor a(a_view, has_rows(a_view)), written(out, has_rows(out));
  a.load();
  const View* views[] = {&a.view, &written.view};
  const ChannelRows rows(views, 2);
  const Constants<T, 1> constants(rows);
  T* biases = constants[0];
  for (Index c = 0; c < rows.channels; ++c) biases[c] = element<T>(bias, c);
  constants.repeat();
  const T* from = data_of<const T>(a.view);
  apply(rows, data_of<T>(written.view), 1, [=]<class V>(V, const Index* positions, Index i) {
    const V sum = get<V>(from + positions[0] + i) + get<V>(biases + i);
    return V{} > sum ? V{} : sum;
  });
  written.store();
}

// The gradient before the ReLU, which is stored and summed.
template <class T>
struct Passing {
  const T *grad, *y;
  T* kept;

  // Computes the terms of element i, counted from `positions` in grad, y and kept.
  template <class V>
  [[gnu::always_inline]] void terms(const Index* positions, Index i, V& passed, V& unused) const {
    passed = math::relu_passed(get<V>(grad + positions[0] + i), get<V>(y + positions[1] + i));
    unused = V{};
    put(kept + positions[2] + i, passed);
  }
};

template <class T>
void gradient_and_sums(In grad_view, In y_view, Out out, Out bias_grad) {
  const RowMajor grad(grad_view, has_rows(grad_view)), y(y_view, has_rows(y_view));
  const RowMajor written(out, has_rows(out));
  grad.load();
  y.load();
  const View* views[] = {&grad.view, &y.view, &written.view};
  const ChannelRows rows(views, 3);
  const ThreadScratch scratch(static_cast<std::size_t>(rows.channels) * sizeof(ChannelSums));
  ChannelSums* totals = scratch.as<ChannelSums>();
  const Passing<T> passing{data_of<const T>(grad.view), data_of<const T>(y.view),
                           data_of<T>(written.view)};
  sum_channels<T>(rows, passing, totals);
  written.store();
  for (Index c = 0; c < rows.channels; ++c) {
    data_of<T>(bias_grad)[c * bias_grad.strides[0]] = T(totals[c].first);
  }
}

}  // namespace

void apply_epilogue(In a, Out out, const Epilogue& epilogue) {
  if (out.shape[out.ndim - 1] == 0) return;
  with_float(out.dtype, [&]<class T>(Tag<T>) { bias_relu<T>(a, *epilogue.bias, out); });
}

void relu_grad(In grad, In y, Out out, MaybeOut bias_grad) {
  with_float(out.dtype, [&]<class T>(Tag<T>) {
    if (bias_grad != nullptr && bias_grad->shape[0] > 0) {
      gradient_and_sums<T>(grad, y, out, *bias_grad);
    } else {
      map_runs<T, T, T>(make_plan(out, grad, y),
                        [](T passed, T value) { return math::relu_passed(passed, value); });
    }
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
