// The gradient of batch_norm and its epilogue. One pass sums the gradient, and its product with the
// deviations, over each channel; a second pass writes x_grad. With ReLU the normalised value is
// recomputed from x, so that it need not be kept. With a residual and ReLU the sign of the result y
// masks the gradient; the first pass writes the masked gradient, which is the residual's gradient.
#include <cmath>

#include "batch_norm.h"
#include "core/scalar_math.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

// x_grad = scale * g - (x - mean) * slope - offset
template <class T>
struct Constants {
  T scale, slope, offset;
};

// The vectors of a call, with one element per channel.
template <class T>
struct Vectors {
  Vector<const T> weight, bias, mean, var;
  Vector<T> weight_grad, bias_grad;
  double eps;
  Constants<T>* constants;

  __device__ double inverse(std::uint32_t channel) const {
    return 1.0 / std::sqrt(double(var[channel]) + eps);
  }
  // `sums` are the sums of the gradient and of its product with x - mean.
  __device__ void write(std::uint32_t channel, const Sums& sums, double pixels) const {
    const double inv = inverse(channel), scale = double(weight[channel]) * inv;
    constants[channel] = {T(scale), T(scale / pixels * sums.second * inv * inv),
                          T(scale / pixels * sums.first)};
    weight_grad[channel] = T(sums.second * inv);
    bias_grad[channel] = T(sums.first);
  }
};

// The mask of ReLU, recomputed from x.
template <class T, Then then>
struct Mask {
  T scale, bias;

  __device__ Mask(const Vectors<T>& v, std::uint32_t channel) {
    if constexpr (then == Then::kRelu) {
      scale = T(double(v.weight[channel]) * v.inverse(channel));
      bias = v.bias[channel];
    }
  }
  __device__ T apply(T grad, T centred) const {
    if constexpr (then == Then::kRelu) return math::relu_passed(grad, centred * scale + bias);
    return grad;
  }
};

// Operands: x, grad; with kAddRelu added_grad, x, grad, y.
template <class T, Then then>
__global__ void __launch_bounds__(kChannelThreads)
    gradient_sums_kernel(const __grid_constant__ Layout layout,
                         const __grid_constant__ ChannelTiles t,
                         const __grid_constant__ Vectors<Computed<T>> v, Sums* parts) {
  using V = Computed<T>;
  constexpr bool kAdds = then == Then::kAddRelu;
  constexpr int kX = kAdds ? 1 : 0;
  const ChannelThread my(t);
  Sums total = {};
  if (my.first < my.end) {
    const V center = v.mean[my.channel];
    const Mask<V, then> mask(v, my.channel);
    V sum = 0, product = 0;
    struct Loaded {
      T* added_grad;
      V x, grad, y;
    };
    const auto load = [&](std::uint32_t i) {
      const auto offsets = locate<kAdds ? 4 : 2>(layout.pixels, i);
      Loaded loaded{layout.at<T>(0, offsets.bytes[0], my.channel),
                    *layout.at<const T>(kX, offsets.bytes[kX], my.channel),
                    *layout.at<const T>(kX + 1, offsets.bytes[kX + 1], my.channel), V()};
      if constexpr (kAdds) loaded.y = *layout.at<const T>(3, offsets.bytes[3], my.channel);
      return loaded;
    };
    stream<T>(my.first, my.end, my.step, load, [&](std::uint32_t, const Loaded& loaded) {
      const V centred = loaded.x - center;
      V grad = mask.apply(loaded.grad, centred);
      if constexpr (kAdds) {
        grad = math::relu_passed(grad, loaded.y);
        *loaded.added_grad = T(grad);
      }
      sum += grad;
      product += grad * centred;
    });
    total = {double(sum), double(product)};
  }
  if (add_up(total, parts, t, my)) v.write(my.channel, total, t.pixels);
}

// Operands: x_grad, x, the gradient.
template <class T, Then then>
__global__ void __launch_bounds__(kChannelThreads)
    input_gradient_kernel(const __grid_constant__ Layout layout,
                          const __grid_constant__ ChannelTiles t,
                          const __grid_constant__ Vectors<Computed<T>> v) {
  using V = Computed<T>;
  const ChannelThread my(t);
  if (my.first >= my.end) return;
  const V center = v.mean[my.channel];
  const Mask<V, then> mask(v, my.channel);
  const Constants<V> c = v.constants[my.channel];
  each_pixel<T, 2>(layout, my, [&](T* x_grad, const V* in) {
    const V centred = in[0] - center, grad = mask.apply(in[1], centred);
    *x_grad = T(c.scale * grad - (centred * c.slope + c.offset));
  });
}

// The views of a gradient call. kRelu uses `bias`, kAddRelu uses `y` and `added_grad`; else they
// are unused.
struct GradientCall {
  const View &grad, &y, &x, &weight, &bias, &mean, &var;
  const View &x_grad, &weight_grad, &bias_grad, &added_grad;
  double eps;
};

template <class T, Then then>
void gradient(const GradientCall& call) {
  constexpr bool kAdds = then == Then::kAddRelu;
  constexpr Then kLeft = kAdds ? Then::kNothing : then;  // added_grad is already masked
  using V = Computed<T>;
  const int device = call.x.device;
  const std::int64_t channels = call.x.shape[call.x.ndim - 1];
  if (channels == 0) return;
  if (size_of(call.x) == 0) {
    for (const View* empty : {&call.weight_grad, &call.bias_grad}) fill(*empty, 0.0, 0);
    return;
  }
  const View* summed[] = {&call.added_grad, &call.x, &call.grad, &call.y};
  const View* written[] = {&call.x_grad, &call.x, kAdds ? &call.added_grad : &call.grad};
  const Pass sums("batch_norm_grad", kAdds ? summed : summed + 1, kAdds ? 4 : 2, true);
  const Pass writes("batch_norm_grad", written, 3, false);
  const Temporary parts(sums.tiles.chunks * std::size_t(channels) * sizeof(Sums), device);
  const Temporary constants(std::size_t(channels) * sizeof(Constants<V>), device);
  const Vectors<V> v{Vector<const V>(call.weight),
                     Vector<const V>(call.bias),
                     Vector<const V>(call.mean),
                     Vector<const V>(call.var),
                     Vector<V>(call.weight_grad),
                     Vector<V>(call.bias_grad),
                     call.eps,
                     constants.as<Constants<V>>()};
  launch("batch_norm_grad", device, {sums.tiles.blocks()}, {kChannelThreads},
         gradient_sums_kernel<T, then>, sums.layout, sums.tiles, v, parts.as<Sums>());
  launch("batch_norm_grad", device, {writes.tiles.blocks()}, {kChannelThreads},
         input_gradient_kernel<T, kLeft>, writes.layout, writes.tiles, v);
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
  with_stored_float(x.dtype, [&]<class T>(Tag<T>) {
    with_then(epilogue.residual_grad != nullptr, epilogue.bias != nullptr,
              [&](auto then) { gradient<T, then>(call); });
  });
}

}  // namespace needle::cuda
