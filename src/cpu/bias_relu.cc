// relu(a + bias), the bias along the last axis, and its gradients in one pass: the gradient where
// the result is positive, and its sums over all other axes. Layouts, chunks of rows and the order
// of sums are batch norm's (batch_norm.h).
#include "batch_norm.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

template <class T>
void forward(In a, In bias, Out out) {
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

// What relu lets pass: kept, and given back for the sums.
template <class T>
struct Passing {
  const T *grad, *y;
  T* kept;

  // Element i behind the places `at` in grad, y and kept.
  template <class V>
  [[gnu::always_inline]] V at(const Index* places, Index i) const {
    const V g = get<V>(grad + places[0] + i);
    const V passed = get<V>(y + places[1] + i) > V{} ? g : V{};
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
void gradient(In grad, In y, Out a_grad, Out bias_grad) {
  const View* views[] = {&grad, &y, &a_grad};
  const Layout layout = layout_of(views, 3);
  const Index channels = layout.channels;
  const ThreadScratch scratch(static_cast<std::size_t>(channels) * sizeof(double));
  double* totals = scratch.as<double>();
  const Passing<T> passing{data_of<const T>(grad), data_of<const T>(y), data_of<T>(a_grad)};
  layout.rows ? sums_by_rows(ChannelRows(layout.leading, channels), passing, totals)
              : sums_by_runs(layout, passing, totals);
  for (Index c = 0; c < channels; ++c) {
    data_of<T>(bias_grad)[c * bias_grad.strides[0]] = T(totals[c]);
  }
}

}  // namespace

void bias_relu(In a, In bias, Out out) {
  with_float(out.dtype, [&](auto tag) { forward<typename decltype(tag)::type>(a, bias, out); });
}

void bias_relu_grad(In grad, In y, Out a_grad, Out bias_grad) {
  with_float(y.dtype,
             [&](auto tag) { gradient<typename decltype(tag)::type>(grad, y, a_grad, bias_grad); });
}

}  // namespace needle::cpu::NEEDLE_ISA
