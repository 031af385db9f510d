// batch_norm: one pass over x for the moments of each channel and one that normalises, in which
// also relu, or the addition of a residual and relu, is applied. A thread sums deviations from its
// first value and their squares; such moments, in double, combine by the formula of Chan, Golub and
// LeVeque (1979), so that neither a large mean nor the number of blocks changes the result.
#include <cmath>
#include <limits>

#include "batch_norm.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

struct Moments {
  double count, mean, squares;  // of the deviations from the mean

  __device__ Moments& operator+=(const Moments& other) {
    const double all = count + other.count, apart = other.mean - mean;
    if (other.count > 0) {
      const double share = other.count / all;
      squares += other.squares + apart * apart * count * share;
      mean += apart * share;
      count = all;
    }
    return *this;
  }
};

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    moments_kernel(const __grid_constant__ Layout layout, const __grid_constant__ ChannelTiles t,
                   Moments* parts) {
  NEEDLE_SHARED(shared, Moments[kChannelThreads]);
  const ChannelThread my(t);
  const auto x = [&](std::uint32_t pixel) {
    return *layout.at<const T>(0, locate<1>(layout.pixels, pixel).of[0], my.channel);
  };
  Moments total = {};
  if (my.first < my.end) {
    const T center = x(my.first);
    T sum = T(0), squares = T(0);
    stream<T>(my.first, my.end, my.step, x, [&](std::uint32_t, T value) {
      const T deviation = value - center;
      sum += deviation;
      squares += deviation * deviation;
    });
    const double count = (my.end - 1 - my.first) / my.step + 1, shift = double(sum) / count;
    total = {count, double(center) + shift, std::fmax(0.0, double(squares) - double(sum) * shift)};
  }
  total = add_up(total, shared, t.across);
  if (threadIdx.x < t.across && my.channel < t.channels) {
    parts[std::size_t(my.chunk) * t.channels + my.channel] = total;
  }
}

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
};

// A block combines the partial moments of a channel.
template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    statistics_kernel(const __grid_constant__ ChannelTiles t, const Moments* parts,
                      const __grid_constant__ Statistics<T> s, Constants<T>* constants) {
  NEEDLE_SHARED(shared, Moments[kChannelThreads]);
  const std::uint32_t channel = blockIdx.x;
  const Moments all = add_parts(parts, t, channel, shared);
  if (threadIdx.x > 0) return;
  const double var = all.squares / all.count;
  const double scale = double(s.weight[channel]) / std::sqrt(var + s.eps);
  const T center = T(all.mean);
  constants[channel] = {center, T(scale),
                        T(double(s.bias[channel]) - (all.mean - double(center)) * scale)};
  s.mean[channel] = center;
  s.var[channel] = T(var);
}

// Operands: out, x, added.
template <class T, Then then>
__global__ void __launch_bounds__(kChannelThreads)
    normalize_kernel(const __grid_constant__ Layout layout, const __grid_constant__ ChannelTiles t,
                     const Constants<T>* constants) {
  constexpr int kOperands = then == Then::kAddRelu ? 3 : 2;
  const ChannelThread my(t);
  if (my.first >= my.end) return;
  const Constants<T> c = constants[my.channel];
  struct Loaded {
    T* out;
    T x, added;
  };
  const auto load = [&](std::uint32_t i) {
    const auto at = locate<kOperands>(layout.pixels, i);
    Loaded loaded{layout.at<T>(0, at.of[0], my.channel),
                  *layout.at<const T>(1, at.of[1], my.channel), T()};
    if constexpr (then == Then::kAddRelu) {
      loaded.added = *layout.at<const T>(2, at.of[2], my.channel);
    }
    return loaded;
  };
  stream<T>(my.first, my.end, my.step, load, [&](std::uint32_t, const Loaded& loaded) {
    T value = (loaded.x - c.center) * c.scale + c.shift;
    if constexpr (then == Then::kAddRelu) value += loaded.added;
    if constexpr (then != Then::kNothing) value = value < T(0) ? T(0) : value;  // NaN stays
    *loaded.out = value;
  });
}

template <class T, Then then>
void normalize(In x, In weight, In bias, In added, Out out, Out mean, Out var, double eps) {
  const std::int64_t channels = x.shape[x.ndim - 1];
  if (channels == 0) return;
  if (size_of(x) == 0) {
    for (const View* statistic : {&mean, &var}) {
      fill(*statistic, std::numeric_limits<double>::quiet_NaN(), 0);
    }
    return;
  }
  const View* summed[] = {&x, &x};
  const View* written[] = {&out, &x, &added};
  const Pass sums("batch_norm", summed, 2, true);
  const Pass writes("batch_norm", written, then == Then::kAddRelu ? 3 : 2, false);
  const Temporary parts(sums.tiles.chunks * std::size_t(channels) * sizeof(Moments), x.device);
  const Temporary constants(std::size_t(channels) * sizeof(Constants<T>), x.device);
  launch("batch_norm", x.device, {sums.tiles.blocks()}, {kChannelThreads}, moments_kernel<T>,
         sums.layout, sums.tiles, parts.as<Moments>());
  const Statistics<T> statistics{Vector<const T>(weight), Vector<const T>(bias), Vector<T>(mean),
                                 Vector<T>(var), eps};
  launch("batch_norm", x.device, {static_cast<unsigned>(channels)}, {kChannelThreads},
         statistics_kernel<T>, sums.tiles, parts.as<Moments>(), statistics,
         constants.as<Constants<T>>());
  launch("batch_norm", x.device, {writes.tiles.blocks()}, {kChannelThreads},
         normalize_kernel<T, then>, writes.layout, writes.tiles, constants.as<Constants<T>>());
}

}  // namespace

void batch_norm(In x, In weight, In bias, Out out, Out mean, Out var, double eps,
                const Epilogue& epilogue) {
  with_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (epilogue.residual != nullptr) {
      normalize<T, Then::kAddRelu>(x, weight, bias, *epilogue.residual, out, mean, var, eps);
    } else if (epilogue.relu) {
      normalize<T, Then::kRelu>(x, weight, bias, x, out, mean, var, eps);
    } else {
      normalize<T, Then::kNothing>(x, weight, bias, x, out, mean, var, eps);
    }
  });
}

}  // namespace needle::cuda
