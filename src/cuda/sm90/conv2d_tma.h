// conv2d and its input gradient by TMA, with the moments of the result in the epilogue. Called by
// conv2d.cu.
#pragma once

#include "../conv2d_product.h"
#include "moments_epilogue.h"
#include "tma_tile.h"

namespace needle::cuda {
namespace {

// The result for one group. It stores the moments of the result too.
struct ResultWithMoments : PixelResult<BFloat16> {
  __device__ std::uint32_t rows() const { return p.windows.pixels.size; }
  __device__ void put_moment(std::uint32_t part, std::uint32_t n, const Moment& moment) const {
    if (n >= p.n) return;
    float* to = p.moments + std::size_t(part) * 2 * p.n + n;
    to[0] = moment.mean;
    to[p.n] = moment.squares;
  }
  template <class Accumulator>
  __device__ void finish(const Accumulator& accumulator, std::uint32_t row,
                         std::uint32_t column) const {
    if (p.moments != nullptr) write_moments(accumulator, *this, row, column);
  }
};

template <class Tile, Load kB>
__global__ void __launch_bounds__(Tile::kThreads, 2 * Tile::kMinBlocks)
    conv2d_tma_kernel(const __grid_constant__ WindowProduct<BFloat16> p,
                      const __grid_constant__ Im2colWindows windows,
                      const __grid_constant__ TensorMap source,
                      const __grid_constant__ TensorMap weight) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  tma_product<Tile>(TmaWindows<Load::kKMajor>{source, windows}, TmaFilters<kB>{weight, p.taps},
                    down * Tile::kTileM, across * Tile::kTileN, 0, p.taps.k,
                    ResultWithMoments{{p, 0}});
}

// Returns false if TMA cannot load the operands.
template <class Tile, Load kB>
bool launch_tma(const char* op, WindowProduct<BFloat16>& p, std::uint32_t groups, int device) {
  if (groups != 1 || p.taps.k == 0) return false;
  use(device);
  Im2colWindows windows{p.windows, p.taps, 0, 0};
  const auto source = im2col_map_of(p.source, p.windows, p.taps, Tile::kTileM, windows);
  const TensorAxis n{p.n, p.weight_n}, channel{p.taps.channels.divisor, p.weight_channel};
  const TensorAxis column{p.taps.columns.divisor, p.weight_column};
  const TensorAxis row{p.taps.rows(), p.weight_row};
  const auto weight = kB == Load::kKMajor
                          ? tiled_map(p.weight, {channel, n, column, row}, Tile::kTileN)
                          : tiled_map(p.weight, {n, channel, column, row}, 32);
  if (!source || !weight) return false;
  const std::uint32_t across = ceil_div<std::uint32_t>(p.n, Tile::kTileN);
  p.tiles_across = Divisor(across);
  launch_with_shared(op, device,
                     {across * ceil_div<std::uint32_t>(p.windows.pixels.size, Tile::kTileM)},
                     {Tile::kThreads}, sizeof(TmaStorage<Tile>), conv2d_tma_kernel<Tile, kB>, p,
                     windows, *source, *weight);
  return true;
}

}  // namespace
}  // namespace needle::cuda
