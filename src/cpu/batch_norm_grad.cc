// The gradient of batch_norm and its epilogue: a pass that sums over each channel (chunks of rows,
// divided by the shape alone, added in order) and a pass that writes.
#include <cmath>

#include "batch_norm.h"
#include "core/scalar_math.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// The sums over a channel of grad and of grad * (x - mean).
struct GradientSums {
  double grad = 0, product = 0;
};

// The gradient before the epilogue's ReLU. With kRelu the normalised value is recomputed from x, so
// that the result need not be read. With kAddRelu the sign of the result y decides, and the masked
// gradient is stored, since it is the gradient of the residual.
template <class T, Then then>
struct Source {
  const T *grad, *x, *y;
  T* kept;
  const T *center, *scale, *bias;

  // Element i relative to the positions `at` in grad, x, y and kept.
  template <class V, class Place>
  [[gnu::always_inline]] V gradient(Place place, const Index* at, Index i, V centred) const {
    const V g = get<V>(grad + at[0] + i);
    if constexpr (then == Then::kNothing) {
      return g;
    } else if constexpr (then == Then::kRelu) {
      const V value =
          centred * place.template constant<V>(scale) + place.template constant<V>(bias);
      return math::relu_passed(g, value);
    } else {
      const V masked = math::relu_passed(g, get<V>(y + at[2] + i));
      put(kept + at[3] + i, masked);
      return masked;
    }
  }
  template <class V, class Place>
  [[gnu::always_inline]] V centred(Place place, const Index* at, Index i) const {
    return get<V>(x + at[1] + i) - place.template constant<V>(center);
  }
};

template <class T, Then then>
void sums_by_rows(const ChannelRows& rows, const Source<T, then>& source, GradientSums* totals) {
  const Index channels = rows.channels, width = rows.width(), chunk = chunk_of(rows);
  const Index chunks = (rows.count() + chunk - 1) / chunk;
  const ThreadScratch scratch(static_cast<std::size_t>(2 * chunks * channels) * sizeof(double));
  double* parts = scratch.as<double>();
  each_chunk(rows, parts, [&](Index begin, Index end, double* grads, double* products) {
    const ThreadScratch memory(ColumnSums<T>::bytes(width));
    ColumnSums<T> sums(memory.as<void>(), width);
    rows.each(begin, end, [&](const Index* at, const Index* strides, Index count, Index columns) {
      sums.add(at, strides, count, columns,
               [source](auto kind, const Index* row, Index c, auto& grad, auto& product) {
                 using V = decltype(kind);
                 const V centred = source.template centred<V>(OfColumn{c}, row, c);
                 grad = source.template gradient<V>(OfColumn{c}, row, c, centred);
                 product = grad * centred;
               });
    });
    sums.flush();
    rows.fold(sums.firsts);
    rows.fold(sums.seconds);
    for (Index c = 0; c < channels; ++c) grads[c] = sums.firsts[c], products[c] = sums.seconds[c];
  });
  for (Index c = 0; c < channels; ++c) totals[c] = {};
  for (Index i = 0; i < chunks; ++i) {
    const double* part = parts + 2 * i * channels;
    for (Index c = 0; c < channels; ++c) totals[c].grad += part[c];
    for (Index c = 0; c < channels; ++c) totals[c].product += part[channels + c];
  }
}

template <class T, Then then>
void sums_by_runs(const Layout& layout, const Source<T, then>& source, GradientSums* totals) {
  const bool dense = layout.dense_runs();
  parallel_for(layout.channels, 1, [&](Index begin, Index end) {
    for (Index c = begin; c < end; ++c) {
      double sums[2] = {};
      layout.each_run(c, [&](const Index* at) {
        sum_terms<T>(layout.run(), dense, sums, [&](auto kind, Index i, auto* s) {
          using V = decltype(kind);
          Index places[4];
          for (int v = 0; v < layout.leading.views; ++v) {
            places[v] = at[v] + i * layout.run_stride(v);
          }
          const V centred = source.template centred<V>(OfChannel{c}, places, 0);
          const V g = source.template gradient<V>(OfChannel{c}, places, 0, centred);
          s[0] += g;
          s[1] += g * centred;
        });
      });
      totals[c] = {sums[0], sums[1]};
    }
  });
}

// The views of a gradient call; kRelu uses `bias`, kAddRelu `y` and `added_grad`.
struct GradientCall {
  const View &grad, &y, &x, &weight, &bias, &mean, &var;
  const View &x_grad, &weight_grad, &bias_grad, &added_grad;
  double eps;
};

template <class T, Then then>
void gradient(const GradientCall& call) {
  constexpr bool kAdds = then == Then::kAddRelu;
  const View* summed[] = {&call.grad, &call.x, &call.y, &call.added_grad};
  const Layout layout = layout_of(summed, kAdds ? 4 : 2);
  const View* applied[] = {kAdds ? &call.added_grad : &call.grad, &call.x, &call.x_grad};
  const Layout apply_layout = layout_of(applied, 3);
  const Index channels = layout.channels;
  const ThreadScratch scratch(static_cast<std::size_t>(channels) * sizeof(GradientSums));
  GradientSums* sums = scratch.as<GradientSums>();
  const Constants<T, 3> constants(layout);
  T *center = constants[0], *scale = constants[1], *bias = constants[2];
  for (Index c = 0; c < channels; ++c) {
    const double inverse = 1.0 / std::sqrt(double(element<T>(call.var, c)) + call.eps);
    center[c] = element<T>(call.mean, c);
    scale[c] = T(double(element<T>(call.weight, c)) * inverse);
    bias[c] = then == Then::kRelu ? element<T>(call.bias, c) : T(0);
  }
  constants.repeat(layout);
  const Source<T, then> source{data_of<const T>(call.grad),
                               data_of<const T>(call.x),
                               data_of<const T>(call.y),
                               data_of<T>(call.added_grad),
                               center,
                               scale,
                               bias};
  layout.rows ? sums_by_rows(ChannelRows(layout.leading, channels), source, sums)
              : sums_by_runs(layout, source, sums);

  // x_grad = scale * g - (x - mean) * slope - offset
  const double count = layout.leading.size > 0 ? double(layout.leading.size) : 1.0;
  const Constants<T, 5> applying(apply_layout);
  const T *scales = applying[1], *slopes = applying[3], *offsets = applying[4];
  for (Index c = 0; c < channels; ++c) {
    const double inverse = 1.0 / std::sqrt(double(element<T>(call.var, c)) + call.eps);
    const double factor = double(element<T>(call.weight, c)) * inverse / count;
    for (int i = 0; i < 3; ++i) applying[i][c] = constants[i][c];
    applying[3][c] = T(factor * sums[c].product * inverse * inverse);
    applying[4][c] = T(factor * sums[c].grad);
    const bool empty = layout.leading.size == 0;  // the sums are 0 for any var
    data_of<T>(call.weight_grad)[c * call.weight_grad.strides[0]] =
        empty ? T(0) : T(sums[c].product * inverse);
    data_of<T>(call.bias_grad)[c * call.bias_grad.strides[0]] = T(sums[c].grad);
  }
  applying.repeat(apply_layout);
  constexpr Then kLeft = kAdds ? Then::kNothing : then;  // the stored gradient is already masked
  const Source<T, kLeft> behind{data_of<const T>(*applied[0]),
                                data_of<const T>(call.x),
                                nullptr,
                                nullptr,
                                applying[0],
                                applying[1],
                                applying[2]};
  apply(
      apply_layout, data_of<T>(call.x_grad), 2,
      [=](auto kind, auto place, const Index* at, Index i) {
        using V = decltype(kind);
        const V centred = behind.template centred<V>(place, at, i);
        const V g = behind.template gradient<V>(place, at, i, centred);
        return place.template constant<V>(scales) * g -
               (centred * place.template constant<V>(slopes) + place.template constant<V>(offsets));
      });
}

}  // namespace

void batch_norm_grad(In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad,
                     Out bias_grad, double eps, const EpilogueGrad& epilogue) {
  const auto given = [](const View* view, const View& unused) -> const View& {
    return view != nullptr ? *view : unused;
  };
  const GradientCall call{grad,
                          given(epilogue.result, grad),
                          x,
                          weight,
                          given(epilogue.bias, weight),
                          mean,
                          var,
                          x_grad,
                          weight_grad,
                          bias_grad,
                          given(epilogue.residual_grad, x_grad),
                          eps};
  with_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (epilogue.residual_grad != nullptr) {
      gradient<T, Then::kAddRelu>(call);
    } else if (epilogue.bias != nullptr) {
      gradient<T, Then::kRelu>(call);
    } else {
      gradient<T, Then::kNothing>(call);
    }
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
