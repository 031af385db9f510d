// layer_norm and its gradient process each row of the last dimension separately. Moments are taken
// about a first mean of the row. The gradients of weight and bias are sums over rows: chunks of
// rows, split by the shape alone, give partial sums that are added in order.
#include <cmath>
#include <limits>

#include "core/scratch.h"
#include "core/thread_pool.h"
#include "kernels.h"
#include "runs.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kTaskElements = 1 << 14;
constexpr Index kMostChunks = 64;  // partial sums of the weight gradient
constexpr Index kFlushRows = 128;  // rows summed in the element's own type

template <class T>
void copy_vector(const View& v, T* to) {
  for (Index i = 0; i < v.shape[0]; ++i) to[i] = data_of<const T>(v)[i * v.strides[0]];
}

template <class T>
void normalize_row(const Run<T>& x, const T* weight, const T* bias, T* out, Index out_stride,
                   Index n, const Moments& moments, double eps) {
  const T center = T(moments.mean), scale = T(1.0 / std::sqrt(moments.variance() + eps));
  const T rest =
      T((moments.mean - double(center)) * double(scale));  // the rounding error of the mean
  for (Index i = 0; i < n; ++i) {
    out[i * out_stride] = ((x.data[i * x.stride] - center) * scale - rest) * weight[i] + bias[i];
  }
}

template <class T>
void normalize(const View& x, const View& weight, const View& bias, const View& out,
               const View& mean, const View& var, double eps) {
  const int last = x.ndim - 1;
  const Index n = x.shape[last];
  const View* views[] = {&x, &out, &mean, &var};
  const Leading rows = leading_dims(last, -1, views, 4);
  const Scratch constants(static_cast<std::size_t>(2 * n) * sizeof(T));
  T *weights = constants.as<T>(), *biases = weights + n;
  copy_vector(weight, weights);
  copy_vector(bias, biases);
  parallel_for(rows.size, kTaskElements / (n + 1) + 1, [&](Index begin, Index end) {
    rows.each(begin, end, [&](Index, const Index* offsets) {
      const Run<T> run{data_of<const T>(x) + offsets[0], x.strides[last]};
      const Moments moments = moments_of(run, n);
      normalize_row(run, weights, biases, data_of<T>(out) + offsets[1], out.strides[last], n,
                    moments, eps);
      const T none = std::numeric_limits<T>::quiet_NaN();
      data_of<T>(mean)[offsets[2]] = n > 0 ? T(moments.mean) : none;
      data_of<T>(var)[offsets[3]] = n > 0 ? T(moments.variance()) : none;
    });
  });
}

// ---- gradient ----------------------------------------------------------------------------------

template <class T>
struct GradientRow {
  Run<T> grad, x;
  T* x_grad;
  Index x_grad_stride;
  T center, scale;  // mean and 1 / sqrt(var + eps)
};

// Writes x_grad = scale * (g w - mean(g w) - xhat * mean(g w xhat)) and adds g xhat and g to the
// sums.
template <class T>
void gradient_row(const GradientRow<T>& row, const T* weight, Index n, T* weight_sums,
                  T* bias_sums) {
  const Run<T> w{weight, 1};
  const T center = row.center, scale = row.scale;
  double sums[2] = {};
  sum_terms<T>(n, row.grad.stride == 1 && row.x.stride == 1, sums,
               [&]<class V>(V, Index i, auto* s) {
                 const V product = row.grad.template get<V>(i) * w.template get<V>(i);
                 s[0] += product;
                 s[1] += product * ((row.x.template get<V>(i) - center) * scale);
               });
  const T offset = T(sums[0] / double(n)), slope = T(sums[1] / double(n));
  const auto element = [&](Index i, T g, T x) {
    const T normal = (x - center) * scale;
    weight_sums[i] += g * normal;
    bias_sums[i] += g;
    return scale * (g * weight[i] - offset - normal * slope);
  };
  for (Index i = 0; i < n; ++i) {
    row.x_grad[i * row.x_grad_stride] =
        element(i, row.grad.data[i * row.grad.stride], row.x.data[i * row.x.stride]);
  }
}

// Adds `sums` to `totals` and clears `sums`. Both have 2 n elements, for the weight and the bias.
template <class T>
void flush(T* sums, double* totals, Index n) {
  for (Index i = 0; i < 2 * n; ++i) {
    totals[i] += double(sums[i]);
    sums[i] = T(0);
  }
}

// The views and constants of a gradient call.
template <class T>
struct Gradient {
  const View &grad, &x, &mean, &var, &x_grad;
  double eps;
  Index n;
  const T* weight;
};

// Writes x_grad for rows [begin, end), and their part of the weight and bias gradients to `totals`
// (2, n).
template <class T>
void gradient_rows(const Gradient<T>& call, Index begin, Index end, double* totals) {
  const Index n = call.n;
  const int last = call.x.ndim - 1;
  const View* views[] = {&call.grad, &call.x, &call.x_grad, &call.mean, &call.var};
  const Leading rows = leading_dims(last, -1, views, 5);
  const Scratch scratch(static_cast<std::size_t>(2 * n) * sizeof(T));
  T* sums = scratch.as<T>();
  for (Index i = 0; i < 2 * n; ++i) sums[i] = T(0), totals[i] = 0.0;
  rows.each(begin, end, [&](Index index, const Index* offsets) {
    const double variance = double(data_of<const T>(call.var)[offsets[4]]);
    gradient_row<T>({{data_of<const T>(call.grad) + offsets[0], call.grad.strides[last]},
                     {data_of<const T>(call.x) + offsets[1], call.x.strides[last]},
                     data_of<T>(call.x_grad) + offsets[2],
                     call.x_grad.strides[last],
                     data_of<const T>(call.mean)[offsets[3]],
                     T(1.0 / std::sqrt(variance + call.eps))},
                    call.weight, n, sums, sums + n);
    if ((index - begin + 1) % kFlushRows == 0) flush(sums, totals, n);
  });
  flush(sums, totals, n);
}

template <class T>
void gradient(const View& grad, const View& x, const View& weight, const View& mean,
              const View& var, const View& x_grad, const View& weight_grad, const View& bias_grad,
              double eps) {
  const Index n = x.shape[x.ndim - 1];
  Index rows = 1;
  for (int axis = 0; axis < x.ndim - 1; ++axis) rows *= x.shape[axis];
  const Scratch weights(static_cast<std::size_t>(n) * sizeof(T));
  copy_vector(weight, weights.as<T>());
  const Gradient<T> call{grad, x, mean, var, x_grad, eps, n, weights.as<const T>()};
  const Index even = (rows + kMostChunks - 1) / kMostChunks;
  const Index chunk = even < 16 ? 16 : even, chunks = (rows + chunk - 1) / chunk;
  const Scratch scratch(static_cast<std::size_t>(chunks * 2 * n) * sizeof(double));
  double* parts = scratch.as<double>();
  parallel_for(chunks, 1, [&](Index first, Index last) {
    for (Index i = first; i < last; ++i) {
      const Index end = (i + 1) * chunk < rows ? (i + 1) * chunk : rows;
      gradient_rows(call, i * chunk, end, parts + i * 2 * n);
    }
  });
  for (Index i = 0; i < n; ++i) {
    double weight_sum = 0.0, bias_sum = 0.0;
    for (Index c = 0; c < chunks; ++c) {
      weight_sum += parts[(2 * c) * n + i];
      bias_sum += parts[(2 * c + 1) * n + i];
    }
    data_of<T>(weight_grad)[i * weight_grad.strides[0]] = T(weight_sum);
    data_of<T>(bias_grad)[i * bias_grad.strides[0]] = T(bias_sum);
  }
}

}  // namespace

void layer_norm(In x, In weight, In bias, Out out, Out mean, Out var, double eps) {
  with_float(x.dtype, [&]<class T>(Tag<T>) { normalize<T>(x, weight, bias, out, mean, var, eps); });
}

void layer_norm_grad(In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad,
                     Out bias_grad, double eps) {
  with_float(x.dtype, [&]<class T>(Tag<T>) {
    gradient<T>(grad, x, weight, mean, var, x_grad, weight_grad, bias_grad, eps);
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
