// conv2d and its input gradient are products of windows and filters (conv_windows.h). A block
// computes a tile of pixels by output channels. Depthwise convolutions have their own kernel. The
// input gradient is the same product on the output's gradient. Input pixels whose coordinates agree
// modulo the stride form a grid that only some taps reach. The other taps are skipped, so no
// product with a zero is computed.
#include <numeric>

#include "conv2d_product.h"
#include "depthwise.h"
#include "kernels.h"
#include "sm90/conv2d_tma.h"

namespace needle::cuda {
namespace {

// blockIdx.x: tile of the result; y: group.
template <class T, class Tile, Load kA, Load kB>
__global__ void __launch_bounds__(Tile::kThreads, kMinBlocksOf<T, Tile, kA>)
    conv2d_kernel(const __grid_constant__ WindowProduct<T> p) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  ImageView<const T> source = p.source;
  source.data += blockIdx.y * p.source_group;
  const Windows<T> a{source, p.windows, p.taps};
  const Filters<T, kB == Load::kMnMajor> b{p.weight + blockIdx.y * p.weight_group,
                                           p.n,
                                           p.weight_n,
                                           p.weight_row,
                                           p.weight_column,
                                           p.weight_channel,
                                           p.taps};
  tile_product<T, Tile, kA, kB>(a, b, down * Tile::kTileM, across * Tile::kTileN, 0, p.taps.k,
                                PixelResult<T>{p, blockIdx.y});
}

// Launches the product for every group. Returns true if a kernel of sm90/ did it, which then also
// wrote the moments.
template <class T, class Tile, Load kA, Load kB>
bool launch_kernel(const char* op, WindowProduct<T>& p, std::uint32_t groups, int device) {
  if constexpr (kUsesTma<T, Tile>) {
    if (launch_tma<Tile, kB>(op, p, groups, device)) return true;
  }
  const std::uint32_t across = ceil_div<std::uint32_t>(p.n, Tile::kTileN);
  p.tiles_across = Divisor(across);
  launch(op, device,
         {across * ceil_div<std::uint32_t>(p.windows.pixels.size, Tile::kTileM), groups},
         {Tile::kThreads}, conv2d_kernel<T, Tile, kA, kB>, p);
  return false;
}

// Returns true if the weights can be loaded as aligned vectors in every tap and every group.
template <class T>
bool vectorizable_weights(const WindowProduct<T>& p, std::int64_t strides, std::int64_t count) {
  const auto address = reinterpret_cast<std::uintptr_t>(p.weight) / sizeof(T);
  return ((static_cast<std::int64_t>(address) | p.weight_row | p.weight_column | p.weight_group |
           strides | count) %
          kVectorElements<T>) == 0;
}

// Returns true if the weights are evenly spaced along K, also from tap to tap (Filters).
template <class T>
bool uniform_stride(const WindowProduct<T>& p) {
  const std::int64_t channels = p.taps.channels.divisor, columns = p.taps.columns.divisor;
  return p.weight_column == channels * p.weight_channel &&
         p.weight_row == columns * p.weight_column;
}

template <class T, class Tile>
bool launch_tiles(const char* op, WindowProduct<T>& p, std::uint32_t groups, int device) {
  if constexpr (Tile::kTensorCores && (Tile::kThreads == 256 || Tile::VectorTile::kSwizzled)) {
    const std::int64_t channels = p.taps.channels.divisor;
    const bool mn_major =
        p.weight_n == 1 && vectorizable_weights(p, p.weight_channel, p.n) && uniform_stride(p);
    const bool k_major = p.weight_channel == 1 && vectorizable_weights(p, p.weight_n, channels);
    if (vectorizable(p.source, channels) && (mn_major || k_major)) {
      return with_vector_tile<Tile>(device, [&](auto tile) {
        using Vectorized = typename decltype(tile)::type;
        if (mn_major)
          return launch_kernel<T, Vectorized, Load::kKMajor, Load::kMnMajor>(op, p, groups, device);
        return launch_kernel<T, Vectorized, Load::kKMajor, Load::kKMajor>(op, p, groups, device);
      });
    }
  }
  return launch_kernel<T, Tile, Load::kScalar, Load::kScalar>(op, p, groups, device);
}

constexpr std::int64_t kMaxGroups = 32768;  // of one launch

template <class T>
bool run_product(const char* op, WindowProduct<T> p, std::int64_t groups, int device) {
  if (p.windows.pixels.size == 0 || p.n == 0) return false;
  bool tma = false;
  check_offsets(op, p.source, p.windows, p.taps);
  check_offsets(op, p.taps.rows() * std::abs(p.weight_row) +
                        p.taps.columns.divisor * std::abs(p.weight_column) +
                        p.taps.channels.divisor * std::abs(p.weight_channel));
  for (; groups > 0; groups -= kMaxGroups) {
    const auto count = static_cast<std::uint32_t>(std::min(groups, kMaxGroups));
    with_precision<T>(device, [&](auto precision) {
      using Narrow = NarrowTile<T, decltype(precision)::value>;
      const std::int64_t tiles = ceil_div<std::int64_t>(p.windows.pixels.size, Narrow::kTileM) *
                                 ceil_div<std::int64_t>(p.n, Narrow::kTileN) * count;
      if (p.n > kNarrow && 10 * tiles >= 9 * processors(device)) {
        tma = launch_tiles<T, Narrow>(op, p, count, device);
      } else {
        tma = launch_tiles<T, SmallTile<decltype(precision)::value>>(op, p, count, device);
      }
    });
    p.source.data += count * p.source_group;
    p.out.data += count * p.out_group;
    p.weight += count * p.weight_group;
    if (p.bias != nullptr) p.bias += std::int64_t(count) * p.n * p.bias_step;
  }
  return tma;
}

// Returns true if the moments are written.
template <class T>
bool forward(In x, In weight, const View* bias, Computed<T> least, Out out,
             const Geometry& geometry, float* moments = nullptr) {
  if (size_of(out) == 0) return true;
  if (is_depthwise(weight, geometry.groups)) {
    depthwise<T>(x, weight, bias, least, out, geometry);
    return false;
  }
  const std::int64_t inputs = weight.shape[2], outputs = weight.shape[3] / geometry.groups;
  check_count("conv2d", weight.shape[0] * weight.shape[1] * inputs);
  const auto i32 = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  const WindowProduct<T> p{
      image_of<const T>(x),
      image_of<T>(out),
      {PixelGrid("conv2d", out.shape[0], out.shape[1], out.shape[2]), i32(geometry.stride.h),
       i32(geometry.stride.w), -i32(geometry.padding.h), -i32(geometry.padding.w)},
      Taps(weight.shape[0], weight.shape[1], inputs, geometry.dilation),
      data_of<const T>(weight),
      weight.strides[3],
      weight.strides[0],
      weight.strides[1],
      weight.strides[2],
      static_cast<std::uint32_t>(outputs),
      inputs * x.strides[3],
      outputs * out.strides[3],
      outputs * weight.strides[3],
      bias != nullptr ? data_of<const T>(*bias) : nullptr,
      bias != nullptr ? bias->strides[0] : 0,
      least,
      {},
      moments};
  return run_product("conv2d", p, geometry.groups, out.device);
}

// ---- moments of any other result: one thread reads a part of a channel ----

template <class T>
struct StoredResult {
  ImageView<const T> image;
  PixelGrid pixels;
  Divisor channels;
  std::uint32_t parts;
  float* moments;
};

template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    moments_of_kernel(const __grid_constant__ StoredResult<T> r) {
  const std::uint32_t number = blockIdx.x * kChannelThreads + threadIdx.x;
  const std::uint32_t part = r.channels.quotient(number);
  if (part >= r.parts) return;
  const std::uint32_t channel = number - part * r.channels.divisor, first = part * kMomentRows;
  const std::uint32_t end = std::min(first + kMomentRows, r.pixels.size);
  const auto value = [&](std::uint32_t n) -> float {
    const PixelIndex pixel = r.pixels.at(n);
    return r.image.at(pixel.image, pixel.row, pixel.column)[channel * r.image.channel];
  };
  Deviations sums{value(first), 0, 0};
  stream<T>(first, end, 1, value, [&](std::uint32_t, float each) { sums.add(each); });
  const Moment moment = sums.moment(float(end - first));
  float* to = r.moments + std::int64_t(part) * 2 * r.channels.divisor + channel;
  to[0] = moment.mean;
  to[r.channels.divisor] = moment.squares;
}

template <class T>
void moments_of(In out, float* moments) {
  const PixelGrid pixels("conv2d_moments", out.shape[0], out.shape[1], out.shape[2]);
  const std::int64_t parts = ceil_div<std::int64_t>(pixels.size, kMomentRows);
  check_count("conv2d_moments", parts * out.shape[3]);
  const StoredResult<T> r{image_of<const T>(out), pixels, Divisor(out.shape[3]),
                          static_cast<std::uint32_t>(parts), moments};
  const std::int64_t blocks = ceil_div<std::int64_t>(parts * out.shape[3], kChannelThreads);
  launch("conv2d_moments", out.device, {static_cast<std::uint32_t>(blocks)}, {kChannelThreads},
         moments_of_kernel<T>, r);
}

// ---- input gradient: one axis of a phase, the pixels at `phase` modulo the stride. Tap i reaches
// the phase if i = tap + n * step, 0 <= n < taps ----

struct Phase {
  std::int64_t pixels;           // of the phase
  std::int64_t tap, step, taps;  // the first tap, the distance to the next, their number
  std::int64_t first, distance;  // gradient pixel that tap 0 sees from pixel 0; change per tap
};

Phase phase_of(std::int64_t phase, std::int64_t size, std::int64_t kernel, std::int64_t stride,
               std::int64_t padding, std::int64_t dilation) {
  Phase p{ceil_div(size - phase, stride), 0, stride / std::gcd(stride, dilation), 0, 0, 0};
  const auto seen = [&](std::int64_t tap) { return phase + padding - tap * dilation; };
  while (p.tap < std::min(kernel, p.step) && seen(p.tap) % stride != 0) ++p.tap;
  if (p.tap < std::min(kernel, p.step)) {
    p.taps = ceil_div(kernel - p.tap, p.step);
    p.first = seen(p.tap) / stride;
    p.distance = -(p.step * dilation / stride);
  }
  return p;
}

template <class T>
void input_gradient_of(In grad, In weight, Out x_grad, const Geometry& geometry, Pair phase) {
  const char* op = "conv2d_input_grad";
  const Phase y = phase_of(phase.h, x_grad.shape[1], weight.shape[0], geometry.stride.h,
                           geometry.padding.h, geometry.dilation.h);
  const Phase x = phase_of(phase.w, x_grad.shape[2], weight.shape[1], geometry.stride.w,
                           geometry.padding.w, geometry.dilation.w);
  const std::int64_t inputs = weight.shape[2], outputs = weight.shape[3] / geometry.groups;
  check_count(op, weight.shape[0] * weight.shape[1] * outputs);
  ImageView<T> out = image_of<T>(x_grad);
  out.data += phase.h * out.row + phase.w * out.column;
  out.row *= geometry.stride.h;
  out.column *= geometry.stride.w;
  const auto i32 = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  const WindowProduct<T> p{
      image_of<const T>(grad),
      out,
      {PixelGrid(op, x_grad.shape[0], y.pixels, x.pixels), 1, 1, i32(y.first), i32(x.first)},
      Taps(y.taps, x.taps, outputs, {y.distance, x.distance}),
      data_of<const T>(weight) + y.tap * weight.strides[0] + x.tap * weight.strides[1],
      weight.strides[2],
      y.step * weight.strides[0],
      x.step * weight.strides[1],
      weight.strides[3],
      static_cast<std::uint32_t>(inputs),
      outputs * grad.strides[3],
      inputs * x_grad.strides[3],
      outputs * weight.strides[3],
      nullptr,
      0,
      kNoFloor<Computed<T>>,
      {}};
  run_product(op, p, geometry.groups, x_grad.device);
}

template <class T>
void input_gradient(In grad, In weight, Out x_grad, const Geometry& geometry) {
  if (size_of(x_grad) == 0) return;
  if (is_depthwise(weight, geometry.groups)) {
    return depthwise_input_grad<T>(grad, weight, x_grad, geometry);
  }
  for (std::int64_t h = 0; h < std::min(geometry.stride.h, x_grad.shape[1]); ++h) {
    for (std::int64_t w = 0; w < std::min(geometry.stride.w, x_grad.shape[2]); ++w) {
      input_gradient_of<T>(grad, weight, x_grad, geometry, {h, w});
    }
  }
}

}  // namespace

void conv2d(In x, In weight, Out out, const Geometry& geometry, const Epilogue& epilogue) {
  with_stored_float(out.dtype, [&]<class T>(Tag<T>) {
    using V = Computed<T>;
    forward<T>(x, weight, epilogue.bias, epilogue.relu ? V(0) : kNoFloor<V>, out, geometry);
  });
}

void conv2d_moments(In x, In weight, Out out, const Geometry& geometry, const Epilogue& epilogue,
                    Out moments) {
  const auto run = [&]<class T>(std::type_identity<T>) {
    auto* const to = data_of<float>(moments);
    const float least = epilogue.relu ? 0 : kNoFloor<float>;
    if (!forward<T>(x, weight, epilogue.bias, least, out, geometry, to)) moments_of<T>(out, to);
  };
  if (out.dtype == DType::kBFloat16) return run(std::type_identity<BFloat16>{});
  run(std::type_identity<float>{});
}

void conv2d_input_grad(In grad, In weight, Out x_grad, const Geometry& geometry) {
  with_stored_float(x_grad.dtype,
                    [&]<class T>(Tag<T>) { input_gradient<T>(grad, weight, x_grad, geometry); });
}

}  // namespace needle::cuda
