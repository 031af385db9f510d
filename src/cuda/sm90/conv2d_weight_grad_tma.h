// The weight gradient of conv2d by TMA. Called by conv2d_weight_grad.cu.
#pragma once

#include "../conv2d_weight_product.h"
#include "tma_tile.h"

namespace needle::cuda {
namespace {

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kMinBlocks)
    conv2d_weight_grad_tma_kernel(const __grid_constant__ PixelProduct<BFloat16> p,
                                  const __grid_constant__ Im2colWindows windows,
                                  const __grid_constant__ Im2colWindows pixels,
                                  const __grid_constant__ TensorMap x,
                                  const __grid_constant__ TensorMap grad) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  const std::uint32_t begin = blockIdx.y * p.slice;
  const std::uint32_t end = std::min(begin + p.slice, p.windows.pixels.size);
  tma_product<Tile>(TmaWindows<Load::kMnMajor>{x, windows},
                    TmaWindows<Load::kMnMajor>{grad, pixels}, down * Tile::kTileM,
                    across * Tile::kTileN, begin, end,
                    WeightResult<BFloat16>{p, p.out + blockIdx.y * p.slice_stride});
}

// Returns false if TMA cannot load the operands. The output's gradient is loaded as 1 x 1
// windows.
template <class Tile>
bool launch_tma(const PixelProduct<BFloat16>& p, dim3 blocks, int device) {
  if (blocks.z != 1) return false;
  use(device);
  const WindowGrid every{p.windows.pixels, 1, 1, 0, 0};
  const Taps one(1, 1, p.n, {1, 1});
  Im2colWindows windows{p.windows, p.taps, 0, 0}, pixels{every, one, 0, 0};
  const auto x = im2col_map_of(p.x, p.windows, p.taps, 32, windows);
  const auto grad = im2col_map_of(p.grad, every, one, 32, pixels);
  if (!x || !grad) return false;
  launch_with_shared("conv2d_weight_grad", device, blocks, {Tile::kThreads},
                     sizeof(TmaStorage<Tile>), conv2d_weight_grad_tma_kernel<Tile>, p, windows,
                     pixels, *x, *grad);
  return true;
}

}  // namespace
}  // namespace needle::cuda
