// The gradient of batch_norm and its epilogue. The first pass sums over each channel: the shape
// alone divides rows into chunks, whose sums are added in order. The second pass writes the result.
#include <cmath>

#include "batch_norm.h"
#include "core/scalar_math.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// The gradient before the epilogue's ReLU. With kRelu the normalised value is recomputed from x, so
// that the result need not be read. With kAddRelu the sign of the result y decides, and the masked
// gradient is stored, since it is the gradient of the residual.
template <class T, Then then>
struct Source {
  const T *grad, *x, *y;
  T* kept;
  const T *center, *scale, *bias;

  // Returns the gradient of element i, counted from `positions` in grad, x, y and kept.
  template <class V>
  [[gnu::always_inline]] V gradient(const Index* positions, Index i, V centred) const {
    const V g = get<V>(grad + positions[0] + i);
    if constexpr (then == Then::kNothing) {
      return g;
    } else if constexpr (then == Then::kRelu) {
      const V value = centred * get<V>(scale + i) + get<V>(bias + i);
      return math::relu_passed(g, value);
    } else {
      const V masked = math::relu_passed(g, get<V>(y + positions[2] + i));
      put(kept + positions[3] + i, masked);
      return masked;
    }
  }
  template <class V>
  [[gnu::always_inline]] V centred(const Index* positions, Index i) const {
    return get<V>(x + positions[1] + i) - get<V>(center + i);
  }
  // The two terms that are summed per channel.
  template <class V>
  [[gnu::always_inline]] void terms(const Index* positions, Index i, V& grad_term,
                                    V& product) const {
    const V deviation = centred<V>(positions, i);
    grad_term = gradient<V>(positions, i, deviation);
    product = grad_term * deviation;
  }
};

template <class T, Then then>
void gradient(In grad_view, In x_view, In weight, In mean, In var, Out x_grad, Out weight_grad,
              Out bias_grad, double eps, const EpilogueGrad& epilogue) {
  constexpr bool kAdds = then == Then::kAddRelu;
  const View& result_view = kAdds ? *epilogue.result : x_view;
  const View& kept_view = kAdds ? *epilogue.residual_grad : x_view;
  const RowMajor grad(grad_view, has_rows(grad_view)), x(x_view, has_rows(x_view));
  const RowMajor result(result_view, !kAdds || has_rows(result_view));
  const RowMajor kept(kept_view, !kAdds || has_rows(kept_view));
  const RowMajor written(x_grad, has_rows(x_grad));
  grad.load();
  x.load();
  result.load();
  const View* summed[] = {&grad.view, &x.view, &result.view, &kept.view};
  const ChannelRows rows(summed, kAdds ? 4 : 2);
  const View* applied[] = {kAdds ? &kept.view : &grad.view, &x.view, &written.view};
  const ChannelRows apply_rows(applied, 3);
  const Index channels = rows.channels;
  const ThreadScratch scratch(static_cast<std::size_t>(channels) * sizeof(ChannelSums));
  ChannelSums* sums = scratch.as<ChannelSums>();
  const Constants<T, 3> constants(rows);
  T *center = constants[0], *scale = constants[1], *bias = constants[2];
  for (Index c = 0; c < channels; ++c) {
    const double inverse = 1.0 / std::sqrt(double(element<T>(var, c)) + eps);
    center[c] = element<T>(mean, c);
    scale[c] = T(double(element<T>(weight, c)) * inverse);
    bias[c] = then == Then::kRelu ? element<T>(*epilogue.bias, c) : T(0);
  }
  constants.repeat();
  const Source<T, then> source{data_of<const T>(grad.view),
                               data_of<const T>(x.view),
                               data_of<const T>(result.view),
                               data_of<T>(kept.view),
                               center,
                               scale,
                               bias};
  sum_channels<T>(rows, source, sums);
  kept.store();

  // x_grad = scale * g - (x - mean) * slope - offset
  const double count = rows.leading.size > 0 ? double(rows.leading.size) : 1.0;
  const Constants<T, 5> applying(apply_rows);
  const T *scales = applying[1], *slopes = applying[3], *offsets = applying[4];
  for (Index c = 0; c < channels; ++c) {
    const double inverse = 1.0 / std::sqrt(double(element<T>(var, c)) + eps);
    const double factor = double(element<T>(weight, c)) * inverse / count;
    for (int i = 0; i < 3; ++i) applying[i][c] = constants[i][c];
    applying[3][c] = T(factor * sums[c].second * inverse * inverse);
    applying[4][c] = T(factor * sums[c].first);
    const bool empty = rows.leading.size == 0;  // the sums are 0 for any var
    data_of<T>(weight_grad)[c * weight_grad.strides[0]] =
        empty ? T(0) : T(sums[c].second * inverse);
    data_of<T>(bias_grad)[c * bias_grad.strides[0]] = T(sums[c].first);
  }
  applying.repeat();
  constexpr Then kLeft = kAdds ? Then::kNothing : then;  // the stored gradient is already masked
  const Source<T, kLeft> behind{data_of<const T>(*applied[0]),
                                data_of<const T>(x.view),
                                nullptr,
                                nullptr,
                                applying[0],
                                applying[1],
                                applying[2]};
  apply(apply_rows, data_of<T>(written.view), 2, [=]<class V>(V, const Index* positions, Index i) {
    const V centred = behind.template centred<V>(positions, i);
    const V g = behind.template gradient<V>(positions, i, centred);
    return get<V>(scales + i) * g - (centred * get<V>(slopes + i) + get<V>(offsets + i));
  });
  written.store();
}

}  // namespace

void batch_norm_grad(In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad,
                     Out bias_grad, double eps, const EpilogueGrad& epilogue) {
  if (x.shape[x.ndim - 1] == 0) return;
  with_float(x.dtype, [&]<class T>(Tag<T>) {
    with_then(epilogue.residual_grad != nullptr, epilogue.bias != nullptr, [&](auto then) {
      gradient<T, then>(grad, x, weight, mean, var, x_grad, weight_grad, bias_grad, eps, epilogue);
    });
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
