// The weight gradient of conv2d as a matrix product whose long side is k: k runs over the pixels of
// the output's gradient, rows are (tap, input channel) pairs, columns output channels. The result
// has few tiles, so k is cut into parts, by sizes alone, whose products `reduce` adds up.
#include "bulk_tile.h"
#include "depthwise.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

// The left operand: a line is a (tap, channel) pair, k runs through the windows.
template <class T>
struct TapLines {
  using Line = Distance;
  using Depth = Place<T>;
  const Image<const T>& image;
  const WindowGrid& grid;
  const Taps& taps;

  __device__ Line line(std::uint32_t n) const {
    return distance_of(image, taps, n < taps.depth ? n : 0);  // no result beyond is stored
  }
  __device__ Depth depth(std::uint32_t k) const { return window_at(image, grid, k); }
  __device__ bool has(const Line& line, const Depth& depth) const {
    return is_inside(image, depth, line);
  }
  __device__ const T* base(const Line&, const Depth& depth) const { return depth.data; }
  __device__ std::int32_t offset(const Line& line, const Depth&) const { return line.offset; }
  __device__ bool deep() const { return taps.channels.divisor < 8; }  // few channels: along pixels
};

// The right operand: a line is a channel of the output's gradient, k runs through its pixels.
// kEven: all pixels are equally far apart, `column`, also from row to row and from image to image.
template <class T, bool kEven>
struct GradientLines {
  using Line = std::int32_t;
  using Depth = const T*;
  const Image<const T>& image;
  const PixelGrid& grid;
  std::uint32_t lines;

  __device__ Line line(std::uint32_t n) const {
    return (n < lines ? n : 0) * std::int32_t(image.channel);
  }
  __device__ Depth depth(std::uint32_t k) const {
    if constexpr (kEven) return image.data + k * image.column;
    const Pixel pixel = grid.at(k);
    return image.data + pixel.image * image.image +
           offset_of(image, std::int32_t(pixel.row), std::int32_t(pixel.column));
  }
  __device__ bool has(Line, Depth) const { return true; }
  __device__ const T* base(Line, Depth depth) const { return depth; }
  __device__ std::int32_t offset(Line line, Depth) const { return line; }
  __device__ bool deep() const { return image.channel != 1; }
};

template <class T>
struct PixelProduct {
  Image<const T> x, grad;
  WindowGrid windows;
  Taps taps;
  Computed<T>* out;
  std::int64_t row, column, channel, line;  // strides of the result, in elements
  std::uint32_t lines;                      // output channels of a group
  std::int64_t x_group, grad_group, out_group;
  std::uint32_t part;        // pixels of a part
  std::int64_t part_stride;  // elements from the result of one part to that of the next
  Divisor tiles_across;
};

// Rows are (tap, channel) pairs, columns output channels.
template <class T>
struct WeightResult {
  using V = Computed<T>;
  using Row = ResultRow<V>;
  using Column = ResultColumn;
  const PixelProduct<T>& p;
  V* out;

  __device__ Row row(std::uint32_t n) const {
    const bool is = n < p.taps.depth;
    const Taps::At at = p.taps.at(is ? n : 0);
    return {out + at.i * p.row + at.j * p.column + at.channel * p.channel, is};
  }
  __device__ Column column(std::uint32_t n) const { return {n * p.line, n < p.lines}; }
  __device__ void put(const Row& row, const Column& column, V value) const {
    row.data[column.offset] = value;
  }
};

// blockIdx.x: tile of the result; y: part of the pixels; z: group.
template <class T, class Tile, By kBy>
__global__ void __launch_bounds__(Tile::kThreads, kBlocksOf<T, Tile, kBy>)
    conv2d_weight_grad_kernel(const __grid_constant__ PixelProduct<T> p) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  Image<const T> x = p.x, grad = p.grad;
  x.data += blockIdx.z * p.x_group;
  grad.data += blockIdx.z * p.grad_group;
  Computed<T>* const out = p.out + blockIdx.z * p.out_group + blockIdx.y * p.part_stride;
  const TapLines<T> a{x, p.windows, p.taps};
  const GradientLines<T, kBy == By::kLines> b{grad, p.windows.pixels, p.lines};
  const std::uint32_t begin = blockIdx.y * p.part;
  const std::uint32_t end = std::min(begin + p.part, p.windows.pixels.size);
  tile_product<T, Tile, kBy, kBy>(a, b, down * Tile::kTileM, across * Tile::kTileN, begin, end,
                                  WeightResult<T>{p, out});
}

// The same by bulk copies, of one group.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    conv2d_weight_grad_bulk_kernel(const __grid_constant__ PixelProduct<BFloat16> p,
                                   const __grid_constant__ WindowPlaces windows,
                                   const __grid_constant__ WindowPlaces pixels,
                                   const __grid_constant__ TensorMap x,
                                   const __grid_constant__ TensorMap grad) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  const std::uint32_t begin = blockIdx.y * p.part;
  const std::uint32_t end = std::min(begin + p.part, p.windows.pixels.size);
  bulk_product<Tile>(BulkWindows<By::kLines>{x, windows}, BulkWindows<By::kLines>{grad, pixels},
                     down * Tile::kTileM, across * Tile::kTileN, begin, end,
                     WeightResult<BFloat16>{p, p.out + blockIdx.y * p.part_stride});
}

// Returns false if bulk copies cannot bring the operands.
template <class Tile>
bool launch_bulk(const PixelProduct<BFloat16>& p, Grid blocks, int device) {
  if (blocks.z != 1) return false;
  use(device);
  const WindowGrid every{p.windows.pixels, 1, 1, 0, 0};
  const Taps one(1, 1, p.lines, {1, 1});
  WindowPlaces windows{p.windows, p.taps, 0, 0}, pixels{every, one, 0, 0};
  const auto x = map_of_windows(p.x, p.windows, p.taps, 32, windows);
  const auto grad = map_of_windows(p.grad, every, one, 32, pixels);
  if (!x || !grad) return false;
  launch_with_shared("conv2d_weight_grad", device, blocks, {Tile::kThreads},
                     sizeof(BulkMemory<Tile>), conv2d_weight_grad_bulk_kernel<Tile>, p, windows,
                     pixels, *x, *grad);
  return true;
}

template <class T, class Tile, By kBy>
void launch_as(const PixelProduct<T>& p, Grid blocks, int device) {
  if constexpr (kTakesBulk<T, Tile>) {
    if (launch_bulk<Tile>(p, blocks, device)) return;
  }
  launch("conv2d_weight_grad", device, blocks, {Tile::kThreads},
         conv2d_weight_grad_kernel<T, Tile, kBy>, p);
}

// All pixels are equally far apart (GradientLines).
template <class T>
bool is_even(const Image<const T>& image) {
  return image.row == image.width * image.column && image.image == image.height * image.row;
}

template <class T, class Tile>
void launch_tiles(PixelProduct<T>& p, std::uint32_t parts, std::uint32_t groups, int device) {
  const std::uint32_t across = ceil_div<std::uint32_t>(p.lines, Tile::kTileN);
  p.tiles_across = Divisor(across);
  const Grid blocks{across * ceil_div<std::uint32_t>(p.taps.depth, Tile::kTileM), parts, groups};
  if constexpr (Tile::kThreads == 256 || Tile::OfWords::kRounded) {
    const std::int64_t channels = p.taps.channels.divisor;
    if (channels >= 8 && in_words(p.x, channels) && in_words(p.grad, p.lines) && is_even(p.grad)) {
      return with_words<Tile>(device, [&](auto words) {
        launch_as<T, typename decltype(words)::type, By::kLines>(p, blocks, device);
      });
    }
  }
  launch_as<T, Tile, By::kElements>(p, blocks, device);
}

// The number of parts with the least cost: waves of blocks, each as long as its part of the pixels
// and what it takes to write and add up the results. Blocks of 256 threads fill an H100 (132
// processors) two at a time; the number must not depend on the GPU that runs, for its sums would.
template <class Tile>
std::int64_t parts_of(std::int64_t rows, std::int64_t columns, std::int64_t pixels,
                      std::int64_t groups) {
  constexpr std::int64_t kBlocks = Tile::kTileN > 64 ? 1 : 512 / Tile::kThreads;
  constexpr std::int64_t kWave = 132 * kBlocks, kOverhead = 256, kLeast = 128;
  constexpr std::int64_t kMost = 256;
  const std::int64_t tiles =
      ceil_div<std::int64_t>(rows, Tile::kTileM) * ceil_div<std::int64_t>(columns, Tile::kTileN);
  std::int64_t best = 1, least = 0;
  for (std::int64_t parts = 1; parts <= std::clamp<std::int64_t>(pixels / kLeast, 1, kMost);
       ++parts) {
    const std::int64_t cost =
        ceil_div(tiles * groups * parts, kWave) * (ceil_div(pixels, parts) + kOverhead);
    if (least == 0 || cost < least) best = parts, least = cost;
  }
  return best;
}

constexpr std::int64_t kMostGroups = 32768;  // of one launch

template <class T, class Tile>
void run_product(PixelProduct<T> p, std::int64_t parts, std::int64_t groups, int device) {
  for (; groups > 0; groups -= kMostGroups) {
    const auto some = static_cast<std::uint32_t>(std::min(groups, kMostGroups));
    launch_tiles<T, Tile>(p, static_cast<std::uint32_t>(parts), some, device);
    p.x.data += some * p.x_group;
    p.grad.data += some * p.grad_group;
    p.out += some * p.out_group;
  }
}

// `parts` arrays like weight_grad at `memory`, one after another.
View parts_like(Out weight_grad, std::int64_t parts, void* memory) {
  View all = weight_grad;
  all.data = memory;
  all.dtype = computed(weight_grad.dtype);
  all.ndim = 5;
  all.shape[0] = parts;
  for (int i = 0; i < 4; ++i) all.shape[i + 1] = weight_grad.shape[i];
  std::int64_t stride = 1;
  for (int i = 4; i >= 0; stride *= all.shape[i--]) all.strides[i] = stride;
  return all;
}

// out = the sum of the parts
void sum_parts(const View& all, Out out) {
  View sum = out;
  sum.ndim = 5;
  sum.shape[0] = 1, sum.strides[0] = 0;
  for (int i = 0; i < 4; ++i) {
    sum.shape[i + 1] = out.shape[i];
    sum.strides[i + 1] = out.strides[i];
  }
  reduce(ReduceOp::sum, all, sum);
}

template <class T>
void depthwise_weight_grad(In grad, In x, Out weight_grad, const Geometry& geometry) {
  const char* op = "conv2d_weight_grad";
  const Depthwise<T> d = depthwise_of<T>(x, weight_grad, x, geometry);
  const PixelGrid pixels(op, grad.shape[0], grad.shape[1], grad.shape[2]);
  const bool neighbours = grad.strides[3] == 1 && grad.shape[3] > 1;
  const ChannelTiles tiles = tiles_of(op, pixels.size, grad.shape[3], neighbours, true);
  const Temporary memory(tiles.chunks * std::size_t(size_of(weight_grad)) * sizeof(Computed<T>),
                         x.device);
  launch(op, x.device, {tiles.blocks(), static_cast<unsigned>(d.rows * d.columns)},
         {kChannelThreads}, depthwise_weight_grad_kernel<T>, d, image_of<const T>(grad), pixels,
         tiles, memory.as<Computed<T>>());
  sum_parts(parts_like(weight_grad, tiles.chunks, memory.as<void>()), weight_grad);
}

template <class T, class Tile>
void gradient_in_tiles(In grad, In x, Out weight_grad, const Geometry& geometry) {
  const char* op = "conv2d_weight_grad";
  const std::int64_t inputs = weight_grad.shape[2],
                     outputs = weight_grad.shape[3] / geometry.groups;
  const std::int64_t rows = weight_grad.shape[0] * weight_grad.shape[1] * inputs;
  check_count(op, rows);
  const PixelGrid pixels(op, grad.shape[0], grad.shape[1], grad.shape[2]);
  const std::int64_t parts = parts_of<Tile>(rows, outputs, pixels.size, geometry.groups);
  using V = Computed<T>;
  const bool summed = parts > 1 || !std::is_same_v<T, V>;  // by way of memory
  const std::size_t bytes = summed ? std::size_t(parts * size_of(weight_grad)) * sizeof(V) : 0;
  const Temporary memory(bytes, x.device);
  const View all = parts_like(weight_grad, parts, memory.as<void>());
  const std::int64_t* strides = summed ? all.strides + 1 : weight_grad.strides;
  const auto i32 = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  const PixelProduct<T> p{
      image_of<const T>(x),
      image_of<const T>(grad),
      {pixels, i32(geometry.stride.h), i32(geometry.stride.w), -i32(geometry.padding.h),
       -i32(geometry.padding.w)},
      Taps(weight_grad.shape[0], weight_grad.shape[1], inputs, geometry.dilation),
      summed ? memory.as<V>() : data_of<V>(weight_grad),
      strides[0],
      strides[1],
      strides[2],
      strides[3],
      static_cast<std::uint32_t>(outputs),
      inputs * x.strides[3],
      outputs * grad.strides[3],
      outputs * strides[3],
      part_of_k(pixels.size, static_cast<std::uint32_t>(parts)),
      all.strides[0],
      {}};
  check_near(op, p.x, p.windows, p.taps);
  check_near(op, p.grad, {pixels, 1, 1, 0, 0}, Taps(1, 1, outputs, {1, 1}));
  run_product<T, Tile>(p, parts, geometry.groups, x.device);
  if (summed) sum_parts(all, weight_grad);
}

template <class T>
void weight_gradient(In grad, In x, Out weight_grad, const Geometry& geometry) {
  if (size_of(weight_grad) == 0) return;
  if (size_of(grad) == 0) return fill(weight_grad, 0.0, 0);
  if (is_depthwise(weight_grad, geometry.groups)) {
    return depthwise_weight_grad<T>(grad, x, weight_grad, geometry);
  }
  const std::int64_t outputs = weight_grad.shape[3] / geometry.groups;
  const std::int64_t rows = size_of(weight_grad) / weight_grad.shape[3];
  with_precision<T>(x.device, [&](auto precision) {
    using Small = SmallTile<decltype(precision)::value>;
    using Narrow = NarrowTile<T, decltype(precision)::value>;
    using Large = LargeTile<decltype(precision)::value>;
    if constexpr (Large::OfWords::kRounded) {
      if (outputs > 64) return gradient_in_tiles<T, Large>(grad, x, weight_grad, geometry);
    }
    if (outputs > kNarrow && rows > Small::kTileM) {
      gradient_in_tiles<T, Narrow>(grad, x, weight_grad, geometry);
    } else {
      gradient_in_tiles<T, Small>(grad, x, weight_grad, geometry);
    }
  });
}

}  // namespace

void conv2d_weight_grad(In grad, In x, Out weight_grad, const Geometry& geometry) {
  with_stored_float(weight_grad.dtype, [&](auto tag) {
    weight_gradient<typename decltype(tag)::type>(grad, x, weight_grad, geometry);
  });
}

}  // namespace needle::cuda
