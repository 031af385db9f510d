// relu(a + bias), the bias along the last axis, and its gradients in one pass: the gradient where
// the result is positive, and its sums over all other axes. Passes over pixels and channels are
// batch norm's (batch_norm.h): a thread keeps to its channel, so the bias stays in a register.
// Sums are in double from the first element on: memory is the bound, not the additions.
#include "batch_norm.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

// Operands: out, a.
template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    bias_relu_kernel(const __grid_constant__ Layout layout, const __grid_constant__ ChannelTiles t,
                     const Vector<const T> bias) {
  const ChannelThread my(t);
  if (my.first >= my.end) return;
  const T added = bias[my.channel];
#pragma unroll(kInFlight<T>)
  for (std::uint32_t i = my.first; i < my.end; i += my.step) {
    const auto at = locate<2>(layout.pixels, i);
    const T value = *layout.at<const T>(1, at.of[1], my.channel) + added;
    *layout.at<T>(0, at.of[0], my.channel) = value < T(0) ? T(0) : value;  // NaN stays
  }
}

// Operands: a_grad, grad, y. parts[chunk][channel]: sums of what passed.
template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    passing_kernel(const __grid_constant__ Layout layout, const __grid_constant__ ChannelTiles t,
                   double* parts) {
  NEEDLE_SHARED(shared, double[kChannelThreads]);
  const ChannelThread my(t);
  double sum = 0;
#pragma unroll(kInFlight<T>)
  for (std::uint32_t i = my.first; i < my.end; i += my.step) {
    const auto at = locate<3>(layout.pixels, i);
    const T grad = *layout.at<const T>(1, at.of[1], my.channel);
    const T passed = *layout.at<const T>(2, at.of[2], my.channel) > T(0) ? grad : T(0);
    *layout.at<T>(0, at.of[0], my.channel) = passed;
    sum += double(passed);
  }
  sum = add_up(sum, shared, t.across);
  if (threadIdx.x < t.across && my.channel < t.channels) {
    parts[std::size_t(my.chunk) * t.channels + my.channel] = sum;
  }
}

// A block combines the partial sums of a channel.
template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    bias_grad_kernel(const __grid_constant__ ChannelTiles t, const double* parts,
                     const Vector<T> bias_grad) {
  NEEDLE_SHARED(shared, double[kChannelThreads]);
  const double sum = add_parts(parts, t, blockIdx.x, shared);
  if (threadIdx.x == 0) bias_grad[blockIdx.x] = T(sum);
}

template <class T>
void gradient(In grad, In y, Out a_grad, Out bias_grad) {
  const std::int64_t channels = y.shape[y.ndim - 1];
  if (channels == 0) return;
  if (size_of(y) == 0) return fill(bias_grad, 0.0, 0);
  const View* views[] = {&a_grad, &grad, &y};
  const Pass pass("bias_relu_grad", views, 3, true);
  const Temporary parts(pass.tiles.chunks * std::size_t(channels) * sizeof(double), y.device);
  launch("bias_relu_grad", y.device, {pass.tiles.blocks()}, {kChannelThreads}, passing_kernel<T>,
         pass.layout, pass.tiles, parts.as<double>());
  launch("bias_relu_grad", y.device, {static_cast<unsigned>(channels)}, {kChannelThreads},
         bias_grad_kernel<T>, pass.tiles, parts.as<double>(), Vector<T>(bias_grad));
}

}  // namespace

void bias_relu(In a, In bias, Out out) {
  if (size_of(out) == 0) return;
  const View* views[] = {&out, &a};
  const Pass pass("bias_relu", views, 2, false);
  with_float(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch("bias_relu", out.device, {pass.tiles.blocks()}, {kChannelThreads}, bias_relu_kernel<T>,
           pass.layout, pass.tiles, Vector<const T>(bias));
  });
}

void bias_relu_grad(In grad, In y, Out a_grad, Out bias_grad) {
  with_float(y.dtype,
             [&](auto tag) { gradient<typename decltype(tag)::type>(grad, y, a_grad, bias_grad); });
}

}  // namespace needle::cuda
