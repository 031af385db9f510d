// The kernel rows apply_epilogue and relu_grad: relu(a + bias) with the bias along the last axis;
// the gradient where the result is positive and, in the same pass, its sums over all other axes,
// which are the bias's gradient. Layouts, chunks of rows and the order of sums are those of batch
// norm (batch_norm.h).
#include "batch_norm.h"
#include "core/loop.h"
#include "core/scalar_math.h"
#include "core/simd.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

template <class T>
void bias_relu(In a, In bias, Out out) {
  const View* views[] = {&a, &out};
  const Layout layout = layout_of(views, 2);
  const Constants<T, 1> constants(layout);
  T* biases = constants[0];
  for (Index c = 0; c < layout.channels; ++c) biases[c] = element<T>(bias, c);
  constants.repeat(layout);
  const T* from = data_of<const T>(a);
  apply(layout, data_of<T>(out), 1, [=](auto kind, auto place, const Index* at, Index i) {
    using V = decltype(kind);
    const V sum = get<V>(from + at[0] + i) + place.template constant<V>(biases);
    return V{} > sum ? V{} : sum;
  });
}

// out = grad where y > 0, else 0; NaN where y is NaN.
template <class T>
void relu_grad_loop(const LoopPlan& plan) {
  const int last = plan.ndim - 1;
  const std::int64_t so = plan.strides[0][last], sg = plan.strides[1][last],
                     sy = plan.strides[2][last];
  const bool dense = so == sizeof(T) && sg == sizeof(T) && sy == sizeof(T);
  const auto at = [](char* data, std::int64_t offset) -> T& {
    return *reinterpret_cast<T*>(data + offset);
  };
  parallel_runs(plan, kGrain, [=](std::int64_t n, char* const data[]) {
    if (dense) {
      T* out = reinterpret_cast<T*>(data[0]);
      const T* grad = reinterpret_cast<const T*>(data[1]);
      const T* y = reinterpret_cast<const T*>(data[2]);
      NEEDLE_INDEPENDENT
      for (std::int64_t i = 0; i < n; ++i) {
        out[i] = math::relu_passed(grad[i], y[i]);
      }
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        at(data[0], i * so) = math::relu_passed(at(data[1], i * sg), at(data[2], i * sy));
      }
    }
  });
}

// The gradient before the ReLU, which is stored and returned for the sums.
template <class T>
struct Passing {
  const T *grad, *y;
  T* kept;

  // Element i relative to the positions `at` in grad, y and kept.
  template <class V>
  [[gnu::always_inline]] V at(const Index* places, Index i) const {
    const V g = get<V>(grad + places[0] + i);
    const V passed = math::relu_passed(g, get<V>(y + places[1] + i));
    put(kept + places[2] + i, passed);
    return passed;
  }
};

template <class T>
void sums_by_rows(const ChannelRows& rows, const Passing<T>& passing, double* totals) {
  const Index channels = rows.channels, width = rows.width(), chunk = chunk_of(rows);
  const Index chunks = (rows.count() + chunk - 1) / chunk;
  const ThreadScratch scratch(static_cast<std::size_t>(2 * chunks * channels) * sizeof(double));
  double* parts = scratch.as<double>();
  each_chunk(rows, parts, [&](Index begin, Index end, double* sums, double*) {
    const ThreadScratch memory(ColumnSums<T>::bytes(width));
    ColumnSums<T> columns_of(memory.as<void>(), width);
    rows.each(begin, end, [&](const Index* at, const Index* strides, Index count, Index columns) {
      columns_of.add(at, strides, count, columns,
                     [passing](auto kind, const Index* row, Index c, auto& sum, auto& unused) {
                       using V = decltype(kind);
                       sum = passing.template at<V>(row, c);
                       unused = V{};
                     });
    });
    columns_of.flush();
    rows.fold(columns_of.firsts);
    for (Index c = 0; c < channels; ++c) sums[c] = columns_of.firsts[c];
  });
  for (Index c = 0; c < channels; ++c) totals[c] = 0.0;
  for (Index i = 0; i < chunks; ++i) {
    for (Index c = 0; c < channels; ++c) totals[c] += parts[2 * i * channels + c];
  }
}

template <class T>
void sums_by_runs(const Layout& layout, const Passing<T>& passing, double* totals) {
  const bool dense = layout.dense_runs();
  parallel_for(layout.channels, 1, [&](Index begin, Index end) {
    for (Index c = begin; c < end; ++c) {
      double total[1] = {};
      layout.each_run(c, [&](const Index* at) {
        sum_terms<T>(layout.run(), dense, total, [&](auto kind, Index i, auto* sums) {
          Index places[3];
          for (int v = 0; v < 3; ++v) places[v] = at[v] + i * layout.run_stride(v);
          sums[0] += passing.template at<decltype(kind)>(places, 0);
        });
      });
      totals[c] = total[0];
    }
  });
}

template <class T>
void gradient_and_sums(In grad, In y, Out out, Out bias_grad) {
  const View* views[] = {&grad, &y, &out};
  const Layout layout = layout_of(views, 3);
  const Index channels = layout.channels;
  const ThreadScratch scratch(static_cast<std::size_t>(channels) * sizeof(double));
  double* totals = scratch.as<double>();
  const Passing<T> passing{data_of<const T>(grad), data_of<const T>(y), data_of<T>(out)};
  layout.rows ? sums_by_rows(ChannelRows(layout.leading, channels), passing, totals)
              : sums_by_runs(layout, passing, totals);
  for (Index c = 0; c < channels; ++c) {
    data_of<T>(bias_grad)[c * bias_grad.strides[0]] = T(totals[c]);
  }
}

}  // namespace

void apply_epilogue(In a, Out out, const Epilogue& epilogue) {
  with_float(out.dtype,
             [&](auto tag) { bias_relu<typename decltype(tag)::type>(a, *epilogue.bias, out); });
}

void relu_grad(In grad, In y, Out out, MaybeOut bias_grad) {
  with_float(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (bias_grad != nullptr) {
      gradient_and_sums<T>(grad, y, out, *bias_grad);
    } else {
      relu_grad_loop<T>(make_plan(out, grad, y));
    }
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
