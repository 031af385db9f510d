// The rows apply_epilogue and relu_grad. The first computes relu(a + bias) with the bias along the
// last axis. The second passes the gradient where the result is positive and, in the same pass,
// computes its sums over all other axes, which are the bias's gradient. Passes over pixels and
// channels are those of batch norm (batch_norm.h): a thread keeps to its channel, so the bias stays
// in a register. Sums are in double throughout, since memory bandwidth limits the speed, not
// additions.
#include "batch_norm.h"
#include "core/scalar_math.h"
#include "kernels.h"
#include "map.h"

namespace needle::cuda {
namespace {

template <class T>
struct ReluGrad {
  static constexpr bool kLong = false;
  using V = Computed<T>;
  static __device__ T apply(V grad, V y) { return T(math::relu_passed(grad, y)); }
};

// Operands: out, a.
template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    bias_relu_kernel(const __grid_constant__ Layout layout, const __grid_constant__ ChannelTiles t,
                     const Vector<const T> bias) {
  const ChannelThread my(t);
  if (my.first >= my.end) return;
  using V = Computed<T>;
  const V added = bias[my.channel];
  each_pixel<T, 1>(layout, my, [&](T* out, const V* a) {
    const V value = *a + added;
    *out = T(value < V(0) ? V(0) : value);  // NaN stays
  });
}

// Operands: out, grad, y.
template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    passing_kernel(const __grid_constant__ Layout layout, const __grid_constant__ ChannelTiles t,
                   const __grid_constant__ Vector<T> bias_grad, double* parts) {
  const ChannelThread my(t);
  double sum = 0;
  using V = Computed<T>;
  each_pixel<T, 2>(layout, my, [&](T* out, const V* in) {
    const V passed = math::relu_passed(in[0], in[1]);
    *out = T(passed);
    sum += double(passed);
  });
  if (add_up(sum, parts, t, my)) bias_grad[my.channel] = T(sum);
}

template <class T>
void gradient_and_sums(In grad, In y, Out out, Out bias_grad) {
  const std::int64_t channels = y.shape[y.ndim - 1];
  if (channels == 0) return;
  if (size_of(y) == 0) return fill(bias_grad, 0.0, 0);
  const View* views[] = {&out, &grad, &y};
  const Pass pass("relu_grad", views, 3, true);
  const Temporary parts(pass.tiles.chunks * std::size_t(channels) * sizeof(double), y.device);
  launch("relu_grad", y.device, {pass.tiles.blocks()}, {kChannelThreads}, passing_kernel<T>,
         pass.layout, pass.tiles, Vector<T>(bias_grad), parts.as<double>());
}

template <class T>
void bias_relu(In a, In bias, Out out) {
  const View* views[] = {&out, &a};
  const Pass pass("apply_epilogue", views, 2, false);
  launch("apply_epilogue", out.device, {pass.tiles.blocks()}, {kChannelThreads},
         bias_relu_kernel<T>, pass.layout, pass.tiles, Vector<const T>(bias));
}

}  // namespace

void apply_epilogue(In a, Out out, const Epilogue& epilogue) {
  if (size_of(out) == 0) return;
  with_stored_float(out.dtype, [&]<class T>(Tag<T>) { bias_relu<T>(a, *epilogue.bias, out); });
}

void relu_grad(In grad, In y, Out out, MaybeOut bias_grad) {
  with_stored_float(out.dtype, [&]<class T>(Tag<T>) {
    if (bias_grad != nullptr) return gradient_and_sums<T>(grad, y, out, *bias_grad);
    const View* views[] = {&out, &grad, &y};
    map<ReluGrad<T>, T, T, T>("relu_grad", make_plan(out, grad, y), views);
  });
}

}  // namespace needle::cuda
