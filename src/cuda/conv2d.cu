// conv2d and its input gradient: the product of windows and filters (conv_windows.h); a block
// computes a tile of pixels x output channels. Depthwise convolutions have their own kernel. The
// input gradient is the same product on the output's gradient: the input pixels whose coordinates
// agree modulo the stride form a grid, which only some taps reach; the other taps are skipped, so
// no product with a zero is computed.
#include <numeric>

#include "bulk_tile.h"
#include "depthwise.h"
#include "kernels.h"
#include "moments.h"

namespace needle::cuda {
namespace {

template <class T>
struct WindowProduct {
  Image<const T> source;
  Image<T> out;  // its pixels are those of `windows`
  WindowGrid windows;
  Taps taps;
  const T* weight;
  std::int64_t weight_line, weight_row, weight_column, weight_channel;  // strides, in elements
  std::uint32_t lines;  // columns of the product: channels of `out` in a group
  std::int64_t source_group, out_group, weight_group;  // offsets from one group to the next
  const T* bias;                                       // or null
  std::int64_t bias_step;
  Computed<T> least;  // lower bound of a result: 0 with relu, else -inf
  Divisor tiles_across;
  float* moments = nullptr;  // of the result (moments.h), which bulk copies' tiles write; or null
};

// Rows are pixels, columns the channels of a group.
template <class T>
struct PixelResult {
  using Row = ResultRow<T>;
  using V = Computed<T>;
  struct Column : ResultColumn {
    V bias;
  };
  const WindowProduct<T>& p;
  std::uint32_t group;

  __device__ Row row(std::uint32_t n) const {
    const bool is = n < p.windows.pixels.size;
    const Pixel pixel = p.windows.pixels.at(is ? n : 0);
    return {p.out.at(pixel.image, pixel.row, pixel.column) + group * p.out_group, is};
  }
  __device__ Column column(std::uint32_t n) const {
    const bool is = n < p.lines;
    const V none = V(-0.0);  // x + -0 is x, for all x
    return {{n * p.out.channel, is},
            is && p.bias != nullptr ? V(p.bias[(group * p.lines + n) * p.bias_step]) : none};
  }
  __device__ T stored(const Column& column, V value) const {
    value += column.bias;
    return T(value < p.least ? p.least : value);  // NaN stays
  }
  __device__ void put(const Row& row, const Column& column, V value) const {
    row.data[column.offset] = stored(column, value);
  }
};

// The same with its moments, of one group.
struct ResultWithMoments : PixelResult<BFloat16> {
  __device__ std::uint32_t rows() const { return p.windows.pixels.size; }
  __device__ void put_moment(std::uint32_t part, std::uint32_t n, const Moment& moment) const {
    if (n >= p.lines) return;
    float* to = p.moments + std::size_t(part) * 2 * p.lines + n;
    to[0] = moment.mean;
    to[p.lines] = moment.squares;
  }
  template <class Part>
  __device__ void finish(const Part& part, std::uint32_t row, std::uint32_t column) const {
    if (p.moments != nullptr) write_moments(part, *this, row, column);
  }
};

// blockIdx.x: tile of the result; y: group.
template <class T, class Tile, By kA, By kB>
__global__ void __launch_bounds__(Tile::kThreads, kBlocksOf<T, Tile, kA>)
    conv2d_kernel(const __grid_constant__ WindowProduct<T> p) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  Image<const T> source = p.source;
  source.data += blockIdx.y * p.source_group;
  const Windows<T> a{source, p.windows, p.taps};
  const Filters<T, kB == By::kLines> b{p.weight + blockIdx.y * p.weight_group,
                                       p.lines,
                                       p.weight_line,
                                       p.weight_row,
                                       p.weight_column,
                                       p.weight_channel,
                                       p.taps};
  tile_product<T, Tile, kA, kB>(a, b, down * Tile::kTileM, across * Tile::kTileN, 0, p.taps.depth,
                                PixelResult<T>{p, blockIdx.y});
}

// The same by bulk copies, of one group.
template <class Tile, By kB>
__global__ void __launch_bounds__(Tile::kThreads, 2 * Tile::kBlocks)
    conv2d_bulk_kernel(const __grid_constant__ WindowProduct<BFloat16> p,
                       const __grid_constant__ WindowPlaces places,
                       const __grid_constant__ TensorMap source,
                       const __grid_constant__ TensorMap weight) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  bulk_product<Tile>(BulkWindows<By::kDepths>{source, places}, BulkFilters<kB>{weight, p.taps},
                     down * Tile::kTileM, across * Tile::kTileN, 0, p.taps.depth,
                     ResultWithMoments{{p, 0}});
}

// Returns false if bulk copies cannot bring the operands.
template <class Tile, By kB>
bool launch_bulk(const char* op, WindowProduct<BFloat16>& p, std::uint32_t groups, int device) {
  if (groups != 1 || p.taps.depth == 0) return false;
  use(device);
  WindowPlaces places{p.windows, p.taps, 0, 0};
  const auto source = map_of_windows(p.source, p.windows, p.taps, Tile::kTileM, places);
  const Axis line{p.lines, p.weight_line}, channel{p.taps.channels.divisor, p.weight_channel};
  const Axis column{p.taps.columns.divisor, p.weight_column}, row{p.taps.rows(), p.weight_row};
  const auto weight = kB == By::kDepths
                          ? box_map(p.weight, {channel, line, column, row}, Tile::kTileN)
                          : box_map(p.weight, {line, channel, column, row}, 32);
  if (!source || !weight) return false;
  const std::uint32_t across = ceil_div<std::uint32_t>(p.lines, Tile::kTileN);
  p.tiles_across = Divisor(across);
  launch_with_shared(op, device,
                     {across * ceil_div<std::uint32_t>(p.windows.pixels.size, Tile::kTileM)},
                     {Tile::kThreads}, sizeof(BulkMemory<Tile>), conv2d_bulk_kernel<Tile, kB>, p,
                     places, *source, *weight);
  return true;
}

// Returns true if the operands came by bulk copies; so do the next ones.
template <class T, class Tile, By kA, By kB>
bool launch_by(const char* op, WindowProduct<T>& p, std::uint32_t groups, int device) {
  if constexpr (kTakesBulk<T, Tile>) {
    if (launch_bulk<Tile, kB>(op, p, groups, device)) return true;
  }
  const std::uint32_t across = ceil_div<std::uint32_t>(p.lines, Tile::kTileN);
  p.tiles_across = Divisor(across);
  launch(op, device,
         {across * ceil_div<std::uint32_t>(p.windows.pixels.size, Tile::kTileM), groups},
         {Tile::kThreads}, conv2d_kernel<T, Tile, kA, kB>, p);
  return false;
}

// Weights lie in aligned words, from one tap and group to the next too.
template <class T>
bool weights_in_words(const WindowProduct<T>& p, std::int64_t strides, std::int64_t count) {
  const auto address = reinterpret_cast<std::uintptr_t>(p.weight) / sizeof(T);
  return ((static_cast<std::int64_t>(address) | p.weight_row | p.weight_column | p.weight_group |
           strides | count) %
          kWord<T>) == 0;
}

// All rows of the weights are equally far apart, also from tap to tap (Filters).
template <class T>
bool is_even(const WindowProduct<T>& p) {
  const std::int64_t channels = p.taps.channels.divisor, columns = p.taps.columns.divisor;
  return p.weight_column == channels * p.weight_channel &&
         p.weight_row == columns * p.weight_column;
}

template <class T, class Tile>
bool launch_tiles(const char* op, WindowProduct<T>& p, std::uint32_t groups, int device) {
  if constexpr (Tile::kTensorCores && (Tile::kThreads == 256 || Tile::OfWords::kRounded)) {
    const std::int64_t channels = p.taps.channels.divisor;
    const bool lines =
        p.weight_line == 1 && weights_in_words(p, p.weight_channel, p.lines) && is_even(p);
    const bool depths = p.weight_channel == 1 && weights_in_words(p, p.weight_line, channels);
    if (in_words(p.source, channels) && (lines || depths)) {
      return with_words<Tile>(device, [&](auto words) {
        using Words = typename decltype(words)::type;
        if (lines) return launch_by<T, Words, By::kDepths, By::kLines>(op, p, groups, device);
        return launch_by<T, Words, By::kDepths, By::kDepths>(op, p, groups, device);
      });
    }
  }
  return launch_by<T, Tile, By::kElements, By::kElements>(op, p, groups, device);
}

constexpr std::int64_t kMostGroups = 32768;  // of one launch

template <class T>
bool run_product(const char* op, WindowProduct<T> p, std::int64_t groups, int device) {
  if (p.windows.pixels.size == 0 || p.lines == 0) return false;
  bool bulk = false;
  check_near(op, p.source, p.windows, p.taps);
  check_near(op, p.taps.rows() * std::abs(p.weight_row) +
                     p.taps.columns.divisor * std::abs(p.weight_column) +
                     p.taps.channels.divisor * std::abs(p.weight_channel));
  for (; groups > 0; groups -= kMostGroups) {
    const auto some = static_cast<std::uint32_t>(std::min(groups, kMostGroups));
    with_precision<T>(device, [&](auto precision) {
      using Narrow = NarrowTile<T, decltype(precision)::value>;
      const std::int64_t tiles = ceil_div<std::int64_t>(p.windows.pixels.size, Narrow::kTileM) *
                                 ceil_div<std::int64_t>(p.lines, Narrow::kTileN) * some;
      if (p.lines > kNarrow && 10 * tiles >= 9 * processors(device)) {
        bulk = launch_tiles<T, Narrow>(op, p, some, device);
      } else {
        bulk = launch_tiles<T, SmallTile<decltype(precision)::value>>(op, p, some, device);
      }
    });
    p.source.data += some * p.source_group;
    p.out.data += some * p.out_group;
    p.weight += some * p.weight_group;
    if (p.bias != nullptr) p.bias += std::int64_t(some) * p.lines * p.bias_step;
  }
  return bulk;
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
  Image<const T> image;
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
    const Pixel at = r.pixels.at(n);
    return r.image.at(at.image, at.row, at.column)[channel * r.image.channel];
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
  Image<T> out = image_of<T>(x_grad);
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
  with_stored_float(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
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
  with_stored_float(x_grad.dtype, [&](auto tag) {
    input_gradient<typename decltype(tag)::type>(grad, weight, x_grad, geometry);
  });
}

}  // namespace needle::cuda
