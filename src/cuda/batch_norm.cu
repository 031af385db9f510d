// batch_norm makes two passes over x. The first computes the moments of each channel. The second
// normalises and applies the epilogue: ReLU, or the addition of a residual and ReLU. A thread sums
// the deviations from its first value, and their squares. It then shifts these sums, in double, to
// deviations from the channel's first value, so that the threads' sums can be added. That value
// belongs to the sample: its squared distance from the mean is at most the number of pixels times
// the variance, so a large mean costs no precision.
#include <cmath>
#include <limits>

#include "batch_norm.h"
#include "kernels.h"
#include "moments.h"

namespace needle::cuda {
namespace {

// out = (x - center) * scale + shift; the shift includes the rounding error of the mean.
template <class T>
struct Constants {
  T center, scale, shift;
};

template <class T>
struct Statistics {
  Vector<const T> weight, bias;
  Vector<T> mean, var;
  double eps;
  Constants<T>* constants;

  // `sums` are the sums of deviations from `origin` and of their squares.
  __device__ void write(std::uint32_t channel, const Sums& sums, double origin,
                        double pixels) const {
    const double apart = sums.first / pixels, all_mean = origin + apart;
    const double spread = sums.second / pixels - apart * apart;
    const double all_var = spread < 0 ? 0 : spread;  // NaN stays
    const double scale = double(weight[channel]) / std::sqrt(all_var + eps);
    const T center = T(all_mean);
    constants[channel] = {center, T(scale),
                          T(double(bias[channel]) - (all_mean - double(center)) * scale)};
    mean[channel] = center;
    var[channel] = T(all_var);
  }
};

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    moments_kernel(const __grid_constant__ Layout layout, const __grid_constant__ ChannelTiles t,
                   const __grid_constant__ Statistics<Computed<T>> s, Sums* parts) {
  using V = Computed<T>;
  const ChannelThread my(t);
  const auto x = [&](std::uint32_t pixel) -> V {
    return *layout.at<const T>(0, locate<1>(layout.pixels, pixel).bytes[0], my.channel);
  };
  Sums total = {};
  if (my.first < my.end) {
    const V center = x(my.first);
    V sum = 0, squares = 0;
    stream<T>(my.first, my.end, my.step, x, [&](std::uint32_t, V value) {
      const V deviation = value - center;
      sum += deviation;
      squares += deviation * deviation;
    });
    const double count = (my.end - 1 - my.first) / my.step + 1;
    const double apart = double(center) - double(x(0));
    total = {double(sum) + count * apart,
             double(squares) + apart * (2 * double(sum) + count * apart)};
  }
  if (add_up(total, parts, t, my)) s.write(my.channel, total, double(x(0)), t.pixels);
}

// Computes the statistics from partial moments (moments.h); the rows of `t` are parts, not pixels.
// The origin of a channel is the mean of its first part. The deviations of a part from it sum to n
// (mean - origin), and their squares to M2 + n (mean - origin)^2.
template <class V>
__global__ void __launch_bounds__(kChannelThreads)
    parts_kernel(const float* moments, std::uint32_t pixels, const __grid_constant__ ChannelTiles t,
                 const __grid_constant__ Statistics<V> s, Sums* parts) {
  const ChannelThread my(t);
  const auto load = [&](std::uint32_t part) {
    const float* found = moments + std::size_t(part) * 2 * t.channels + my.channel;
    return Moment{found[0], found[t.channels]};
  };
  const double origin = my.channel < t.channels ? load(0).mean : 0;
  Sums total = {};
  stream<float>(my.first, my.end, my.step, load, [&](std::uint32_t part, const Moment& moment) {
    const double count = std::min(std::uint32_t(kMomentRows), pixels - part * kMomentRows);
    const double apart = moment.mean - origin;
    total += Sums{count * apart, moment.squares + count * apart * apart};
  });
  if (add_up(total, parts, t, my)) s.write(my.channel, total, origin, pixels);
}

// Operands: out, x, added.
template <class T, Then then>
__global__ void __launch_bounds__(kChannelThreads)
    normalize_kernel(const __grid_constant__ Layout layout, const __grid_constant__ ChannelTiles t,
                     const Constants<Computed<T>>* constants) {
  using V = Computed<T>;
  constexpr bool kAdds = then == Then::kAddRelu;
  const ChannelThread my(t);
  if (my.first >= my.end) return;
  const Constants<V> c = constants[my.channel];
  each_pixel<T, kAdds ? 2 : 1>(layout, my, [&](T* out, const V* in) {
    V value = (in[0] - c.center) * c.scale + c.shift;
    if constexpr (kAdds) value += in[1];
    if constexpr (then != Then::kNothing) value = value < V(0) ? V(0) : value;  // NaN stays
    *out = T(value);
  });
}

// Launches the kernel that computes the statistics, from partial moments if there are any, else
// from x.
template <class T>
void launch_statistics(In x, const View* moments, const Statistics<Computed<T>>& statistics) {
  const View* summed[] = {&x, &x};
  Pass sums("batch_norm", summed, 2, true);
  const std::uint32_t pixels = sums.tiles.pixels, channels = sums.tiles.channels;
  if (moments != nullptr) {
    sums.tiles = tiles_of("batch_norm", ceil_div(pixels, kMomentRows), channels, true, true);
  }
  const Temporary parts(sums.tiles.chunks * std::size_t(channels) * sizeof(Sums), x.device);
  const auto run = [&](auto kernel, const auto& first, const auto&... more) {
    launch("batch_norm", x.device, {sums.tiles.blocks()}, {kChannelThreads}, kernel, first, more...,
           sums.tiles, statistics, parts.as<Sums>());
  };
  if (moments == nullptr) return run(moments_kernel<T>, sums.layout);
  run(parts_kernel<Computed<T>>, data_of<const float>(*moments), pixels);
}

template <class T, Then then>
void normalize(In x, const View* moments, In weight, In bias, In added, Out out, Out mean, Out var,
               double eps) {
  const std::int64_t channels = x.shape[x.ndim - 1];
  if (channels == 0) return;
  if (size_of(x) == 0) {
    for (const View* statistic : {&mean, &var}) {
      fill(*statistic, std::numeric_limits<double>::quiet_NaN(), 0);
    }
    return;
  }
  using V = Computed<T>;
  const View* written[] = {&out, &x, &added};
  const Pass writes("batch_norm", written, then == Then::kAddRelu ? 3 : 2, false);
  const Temporary constants(std::size_t(channels) * sizeof(Constants<V>), x.device);
  const Statistics<V> statistics{
      Vector<const V>(weight),     Vector<const V>(bias), Vector<V>(mean), Vector<V>(var), eps,
      constants.as<Constants<V>>()};
  launch_statistics<T>(x, moments, statistics);
  launch("batch_norm", x.device, {writes.tiles.blocks()}, {kChannelThreads},
         normalize_kernel<T, then>, writes.layout, writes.tiles, constants.as<Constants<V>>());
}

void batch_norm_by(In x, const View* moments, In weight, In bias, Out out, Out mean, Out var,
                   double eps, const Epilogue& epilogue) {
  with_stored_float(x.dtype, [&]<class T>(Tag<T>) {
    const View& added = epilogue.residual != nullptr ? *epilogue.residual : x;
    with_then(epilogue.residual != nullptr, epilogue.relu, [&](auto then) {
      normalize<T, then>(x, moments, weight, bias, added, out, mean, var, eps);
    });
  });
}

}  // namespace

void batch_norm(In x, In weight, In bias, Out out, Out mean, Out var, double eps,
                const Epilogue& epilogue) {
  batch_norm_by(x, nullptr, weight, bias, out, mean, var, eps, epilogue);
}

void batch_norm_of_moments(In x, In moments, In weight, In bias, Out out, Out mean, Out var,
                           double eps, const Epilogue& epilogue) {
  batch_norm_by(x, &moments, weight, bias, out, mean, var, eps, epilogue);
}

}  // namespace needle::cuda
