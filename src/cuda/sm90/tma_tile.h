// Computes a block's tile on sm_90 from operands stored in bfloat16. TMA loads them: one thread
// requests a box of 32 x 32 to 32 x 128 elements, and no thread computes addresses. The pipeline is
// that of tile_product (gemm.h), and warpgroups multiply as in warpgroup_tile.h.
#pragma once

#include "../conv_windows.h"
#include "tensor_map.h"

namespace needle::cuda {
namespace {

// As many stages as fit beside a second block of the largest tile.
constexpr int kTmaStages = 4;

template <class T, class Tile>
inline constexpr bool kUsesTma = false;
template <class Tile>
  requires Tile::kWarpgroups
inline constexpr bool kUsesTma<BFloat16, Tile> = true;

template <class Tile>
struct TmaStorage {
  SwizzledStage<Tile::kTileM> a[kTmaStages];
  SwizzledStage<Tile::kTileN> b[kTmaStages];
  Mbarrier mbarriers[kTmaStages];
};

// The interface of an operand:
//   kLoad                             kKMajor or kMnMajor
//   load(to, mn, k, mbarrier)         loads the box from `mn` and `k` on, zeros out of bounds
// Rows of a box have 32 elements. K-major operands load one box per stage, MN-major operands one
// for each 32 m (n).
template <class Operand, int kTileMn>
inline constexpr int kBoxes = Operand::kLoad == Load::kKMajor ? 1 : kTileMn / 32;

// An operand that is a matrix. Its map has the two axes in the order of memory.
template <Load kLoad_>
struct TmaMatrix {
  static constexpr Load kLoad = kLoad_;
  const TensorMap& map;

  __device__ void load(void* to, int mn, int k, Mbarrier& mbarrier) const {
    if constexpr (kLoad == Load::kKMajor) tma_load_tile(to, map, {k, mn, 0, 0}, mbarrier);
    if constexpr (kLoad == Load::kMnMajor) tma_load_tile(to, map, {mn, k, 0, 0}, mbarrier);
  }
};

// Weights as an operand. K runs through the channels of one tap after the other. The axes of the
// map are channels and n, in the order of memory, then the taps of a kernel row, then kernel rows.
template <Load kLoad_>
struct TmaFilters {
  static constexpr Load kLoad = kLoad_;
  const TensorMap& map;
  const Taps& taps;

  __device__ void load(void* to, int mn, int k, Mbarrier& mbarrier) const {
    const Tap tap = taps.tap(std::uint32_t(k));
    const int channel = int(tap.channel);
    if constexpr (kLoad == Load::kKMajor) {
      tma_load_tile(to, map, {channel, mn, tap.j, tap.i}, mbarrier);
    }
    if constexpr (kLoad == Load::kMnMajor) {
      tma_load_tile(to, map, {mn, channel, tap.j, tap.i}, mbarrier);
    }
  }
};

// The windows of images as an operand. K-major (convolutions): mn is the window, and K runs through
// the channels of its taps. MN-major (weight gradients): the other way round.
struct Im2colWindows {
  WindowGrid grid;  // of the tap nearest to the first pixel
  Taps taps;
  int nearest_y, nearest_x;  // that tap's offset from the first one, 0 or less
};
template <Load kLoad_>
struct TmaWindows {
  static constexpr Load kLoad = kLoad_;
  const TensorMap& map;
  const Im2colWindows& windows;

  __device__ void load(void* to, int mn, int k, Mbarrier& mbarrier) const {
    const auto& [grid, taps, nearest_y, nearest_x] = windows;
    const auto window = std::uint32_t(kLoad == Load::kKMajor ? mn : k);
    const auto number = std::uint32_t(kLoad == Load::kKMajor ? k : mn);
    const Tap tap = taps.tap(number < taps.k ? number : 0);  // results out of bounds are not stored
    const PixelIndex pixel = grid.pixels.at(window);
    const int y = int(pixel.row) * grid.stride_y + grid.first_y;
    const int x = int(pixel.column) * grid.stride_x + grid.first_x;
    tma_load_im2col(to, map, {int(tap.channel), x, y, int(pixel.image)},
                    {tap.j * taps.step_x - nearest_x, tap.i * taps.step_y - nearest_y}, mbarrier);
  }
};

// Like tile_product, for operands with the interface above. A result may have an epilogue
// finish(accumulator, row, column), called after the tile is stored. `end` - `begin` is a multiple
// of 32, or the tensor ends at `end`.
template <class Tile, class A, class B, class Result>
__device__ void tma_product(const A& a, const B& b, std::uint32_t row, std::uint32_t column,
                            std::uint32_t begin, std::uint32_t end, const Result& result) {
  if constexpr (Tile::kCompiled) {
    NEEDLE_DYNAMIC_SHARED(storage, TmaStorage<Tile>);
    typename Tile::template Accumulator<BFloat16, A::kLoad, B::kLoad> accumulator;
    constexpr int kAhead = kTmaStages - 1;
    // The first lane of each warp loads one box or more.
    const auto start = [&](std::uint32_t k, int stage) {
      constexpr int kBoxesA = kBoxes<A, Tile::kTileM>, kBoxesB = kBoxes<B, Tile::kTileN>;
      constexpr int kBoxSize = 32 * SwizzledStage<32>::kRow;  // elements, of MN-major operands
      if (threadIdx.x % kWarp != 0 || k >= end) return;
      Mbarrier& mbarrier = storage.mbarriers[stage];
      if (threadIdx.x == 0) {
        mbarrier_expect_tx(mbarrier, sizeof storage.a[0] + sizeof storage.b[0]);
      }
#pragma unroll 1
      for (int i = int(threadIdx.x) / kWarp; i < kBoxesA + kBoxesB; i += Tile::kThreads / kWarp) {
        if (i < kBoxesA) {
          a.load(&storage.a[stage].data[i * kBoxSize], int(row) + 32 * i, int(k), mbarrier);
        } else {
          const int j = i - kBoxesA;
          b.load(&storage.b[stage].data[j * kBoxSize], int(column) + 32 * j, int(k), mbarrier);
        }
      }
    };
    if (threadIdx.x == 0) {
      for (Mbarrier& mbarrier : storage.mbarriers) mbarrier_init(mbarrier);
      fence_proxy_async();
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kAhead; ++i) start(begin + i * Tile::kTileK, i);
    std::uint32_t parity = 0;
    for (std::uint32_t first = begin; first < end; first += kTmaStages * Tile::kTileK) {
#pragma unroll
      for (int stage = 0; stage < kTmaStages; ++stage) {
        const std::uint32_t k = first + stage * Tile::kTileK;
        if (k >= end) break;
        mbarrier_wait(storage.mbarriers[stage], parity);
        wgmma_wait();
        __syncthreads();
        start(k + kAhead * Tile::kTileK, (stage + kAhead) % kTmaStages);
        accumulator.multiply_add(storage.a[stage], storage.b[stage]);
      }
      parity ^= 1;
    }
    wgmma_wait();
    store(accumulator, result, row, column);
    if constexpr (requires { result.finish(accumulator, row, column); }) {
      result.finish(accumulator, row, column);
    }
  }
}

// Returns the im2col map of images (N, H, W, C) for boxes of `pixels` windows, and fills in
// `windows`. A step of 32 channels must lie within one tap, and taps must reach at most 255 pixels.
// Returns no value if the convolution exceeds these limits.
template <class T>
std::optional<TensorMap> im2col_map_of(const ImageView<const T>& image, const WindowGrid& grid,
                                       const Taps& taps, std::uint32_t pixels,
                                       Im2colWindows& windows) {
  const std::int64_t channels = taps.channels.divisor;
  const std::int64_t rows = grid.pixels.rows.divisor, columns = grid.pixels.columns.divisor;
  const std::int64_t reach_y = taps.step_y * (taps.rows() - 1);
  const std::int64_t reach_x = taps.step_x * (std::int64_t(taps.columns.divisor) - 1);
  if (channels % 32 != 0 || std::max(std::abs(reach_y), std::abs(reach_x)) > 255) return {};
  windows.nearest_y = int(std::min<std::int64_t>(0, reach_y));
  windows.nearest_x = int(std::min<std::int64_t>(0, reach_x));
  windows.grid.first_y += windows.nearest_y;
  windows.grid.first_x += windows.nearest_x;
  return im2col_map(image.data,
                    {{channels, image.channel},
                     {image.width, image.column},
                     {image.height, image.row},
                     {grid.pixels.size / (rows * columns), image.image}},
                    {windows.grid.first_x, grid.stride_x, columns},
                    {windows.grid.first_y, grid.stride_y, rows}, pixels);
}

}  // namespace
}  // namespace needle::cuda
