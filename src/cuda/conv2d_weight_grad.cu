// The weight gradient of conv2d as a matrix product. Rows are (tap, input channel) pairs, columns
// are output channels, and the long K axis runs over the pixels of the output's gradient. The
// result has few tiles, so K is split into slices by sizes alone; the row reduce adds their
// products.
#include "conv2d_weight_product.h"
#include "depthwise.h"
#include "kernels.h"
#include "sm90/conv2d_weight_grad_tma.h"
#include "split_k.h"

namespace needle::cuda {
namespace {

// blockIdx.x: tile of the result; y: slice of the pixels; z: group.
template <class T, class Tile, Load kLoad>
__global__ void __launch_bounds__(Tile::kThreads, kMinBlocksOf<T, Tile, kLoad>)
    conv2d_weight_grad_kernel(const __grid_constant__ PixelProduct<T> p) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  ImageView<const T> x = p.x, grad = p.grad;
  x.data += blockIdx.z * p.x_group;
  grad.data += blockIdx.z * p.grad_group;
  Computed<T>* const out = p.out + blockIdx.z * p.out_group + blockIdx.y * p.slice_stride;
  const TransposedWindows<T> a{x, p.windows, p.taps};
  const OutputGradient<T, kLoad == Load::kMnMajor> b{grad, p.windows.pixels, p.n};
  const std::uint32_t begin = blockIdx.y * p.slice;
  const std::uint32_t end = std::min(begin + p.slice, p.windows.pixels.size);
  tile_product<T, Tile, kLoad, kLoad>(a, b, down * Tile::kTileM, across * Tile::kTileN, begin, end,
                                      WeightResult<T>{p, out});
}

template <class T, class Tile, Load kLoad>
void launch_kernel(const PixelProduct<T>& p, dim3 blocks, int device) {
  if constexpr (kUsesTma<T, Tile>) {
    if (launch_tma<Tile>(p, blocks, device)) return;
  }
  launch("conv2d_weight_grad", device, blocks, {Tile::kThreads},
         conv2d_weight_grad_kernel<T, Tile, kLoad>, p);
}

// Returns true if all pixels are evenly spaced (OutputGradient).
template <class T>
bool uniform_stride(const ImageView<const T>& image) {
  return image.row == image.width * image.column && image.image == image.height * image.row;
}

template <class T, class Tile>
void launch_tiles(PixelProduct<T>& p, std::uint32_t slices, std::uint32_t groups, int device) {
  const std::uint32_t across = ceil_div<std::uint32_t>(p.n, Tile::kTileN);
  p.tiles_across = Divisor(across);
  const dim3 blocks{across * ceil_div<std::uint32_t>(p.taps.k, Tile::kTileM), slices, groups};
  if constexpr (Tile::kThreads == 256 || Tile::VectorTile::kSwizzled) {
    const std::int64_t channels = p.taps.channels.divisor;
    if (channels >= 8 && vectorizable(p.x, channels) && vectorizable(p.grad, p.n) &&
        uniform_stride(p.grad)) {
      return with_vector_tile<Tile>(device, [&](auto tile) {
        launch_kernel<T, typename decltype(tile)::type, Load::kMnMajor>(p, blocks, device);
      });
    }
  }
  launch_kernel<T, Tile, Load::kScalar>(p, blocks, device);
}

// Returns the number of slices with the least cost. The cost is the number of waves of blocks times
// the length of a wave: a slice of the pixels plus the overhead of storing and adding its result.
// The model is an H100, which has 132 multiprocessors with two blocks of 256 threads each. The
// number must not depend on the actual GPU, or the order of additions would too.
template <class Tile>
std::int64_t slices_of(std::int64_t rows, std::int64_t columns, std::int64_t pixels,
                       std::int64_t groups) {
  constexpr std::int64_t kBlocks = Tile::kTileN > 64 ? 1 : 512 / Tile::kThreads;
  constexpr std::int64_t kWave = 132 * kBlocks, kOverhead = 256, kMinPixels = 128;
  constexpr std::int64_t kMaxSlices = 256;
  const std::int64_t tiles =
      ceil_div<std::int64_t>(rows, Tile::kTileM) * ceil_div<std::int64_t>(columns, Tile::kTileN);
  std::int64_t best = 1, least = 0;
  for (std::int64_t slices = 1;
       slices <= std::clamp<std::int64_t>(pixels / kMinPixels, 1, kMaxSlices); ++slices) {
    const std::int64_t cost =
        ceil_div(tiles * groups * slices, kWave) * (ceil_div(pixels, slices) + kOverhead);
    if (least == 0 || cost < least) best = slices, least = cost;
  }
  return best;
}

constexpr std::int64_t kMaxGroups = 32768;  // of one launch

template <class T, class Tile>
void run_product(PixelProduct<T> p, std::int64_t slices, std::int64_t groups, int device) {
  for (; groups > 0; groups -= kMaxGroups) {
    const auto count = static_cast<std::uint32_t>(std::min(groups, kMaxGroups));
    launch_tiles<T, Tile>(p, static_cast<std::uint32_t>(slices), count, device);
    p.x.data += count * p.x_group;
    p.grad.data += count * p.grad_group;
    p.out += count * p.out_group;
  }
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
  sum_slices(slices_like(weight_grad, tiles.chunks, memory.as<void>()), weight_grad);
}

template <class T, class Tile>
void gradient_in_tiles(In grad, In x, Out weight_grad, const Geometry& geometry) {
  const char* op = "conv2d_weight_grad";
  const std::int64_t inputs = weight_grad.shape[2],
                     outputs = weight_grad.shape[3] / geometry.groups;
  const std::int64_t rows = weight_grad.shape[0] * weight_grad.shape[1] * inputs;
  check_count(op, rows);
  const PixelGrid pixels(op, grad.shape[0], grad.shape[1], grad.shape[2]);
  const std::int64_t slices = slices_of<Tile>(rows, outputs, pixels.size, geometry.groups);
  using V = Computed<T>;
  const bool summed = slices > 1 || !std::is_same_v<T, V>;  // slices are stored first
  const std::size_t bytes = summed ? std::size_t(slices * size_of(weight_grad)) * sizeof(V) : 0;
  const Temporary memory(bytes, x.device);
  const View all = slices_like(weight_grad, slices, memory.as<void>());
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
      k_per_slice(pixels.size, static_cast<std::uint32_t>(slices)),
      all.strides[0],
      {}};
  check_offsets(op, p.x, p.windows, p.taps);
  check_offsets(op, p.grad, {pixels, 1, 1, 0, 0}, Taps(1, 1, outputs, {1, 1}));
  run_product<T, Tile>(p, slices, geometry.groups, x.device);
  if (summed) sum_slices(all, weight_grad);
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
    if constexpr (Large::VectorTile::kSwizzled) {
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
  with_stored_float(weight_grad.dtype,
                    [&]<class T>(Tag<T>) { weight_gradient<T>(grad, x, weight_grad, geometry); });
}

}  // namespace needle::cuda
