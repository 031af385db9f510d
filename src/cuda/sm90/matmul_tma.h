// matmul of single matrices by TMA. Called by matmul.cu.
#pragma once

#include "../matmul_product.h"
#include "tma_tile.h"

namespace needle::cuda {
namespace {

template <class R, class Tile, Load kA, Load kB>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kMinBlocks)
    matmul_tma_kernel(const __grid_constant__ Product p, const __grid_constant__ TensorMap map_a,
                      const __grid_constant__ TensorMap map_b) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  const MatrixResult<R> out{reinterpret_cast<R*>(p.batch.data[0] + blockIdx.y * p.slice_stride),
                            p.m, p.n, p.out_m, p.out_n};
  const std::uint32_t begin = blockIdx.y * p.slice, end = std::min(begin + p.slice, p.k);
  tma_product<Tile>(TmaMatrix<kA>{map_a}, TmaMatrix<kB>{map_b}, down * Tile::kTileM,
                    across * Tile::kTileN, begin, end, out);
}

template <Load kLoad>
std::optional<TensorMap> matrix_map(const char* data, const TensorAxis& mn, const TensorAxis& k,
                                    int tile) {
  const auto* const first = reinterpret_cast<const BFloat16*>(data);
  if constexpr (kLoad == Load::kKMajor) return tiled_map(first, {k, mn, {}, {}}, tile);
  return tiled_map(first, {mn, k, {}, {}}, 32);
}

// Returns false if TMA cannot load the operands.
template <class R, class Tile, Load kA, Load kB>
bool launch_tma(Product& p, int device) {
  if (p.batch.size != 1) return false;
  use(device);
  const auto a = matrix_map<kA>(p.batch.data[1], {p.m, p.a_m}, {p.k, p.a_k}, Tile::kTileM);
  const auto b = matrix_map<kB>(p.batch.data[2], {p.n, p.b_n}, {p.k, p.b_k}, Tile::kTileN);
  if (!a || !b) return false;
  const std::uint32_t across = ceil_div<std::uint32_t>(p.n, Tile::kTileN);
  p.tiles_across = Divisor(across);
  launch_with_shared(
      "matmul", device, {across * ceil_div<std::uint32_t>(p.m, Tile::kTileM), p.slices},
      {Tile::kThreads}, sizeof(TmaStorage<Tile>), matmul_tma_kernel<R, Tile, kA, kB>, p, *a, *b);
  return true;
}

}  // namespace
}  // namespace needle::cuda
