// A block's tile on the tensor cores of sm_90a, for bf16 and fp16 with vector loads. Operands reach
// shared memory as in swizzled_tile.h. There, a warpgroup (four warps) multiplies 64 rows of the
// tile by all its columns, with one wgmma for each 16 of K. No thread loads fragments, so the
// registers are free for accumulators. wgmma runs while the warps round and store the next stage.
#pragma once

#include "../swizzled_tile.h"
#include "instructions.h"
#include "sm90.h"

namespace needle::cuda {
namespace {

// A warpgroup has 64 kMmaM rows of the tile and all its columns. Of each 64 rows a warp has 16, and
// a lane has the same accumulators as with mma_sync.
template <class Tile, Load kA, Load kB>
struct WarpgroupAccumulator : WarpFragments<Tile> {
  static constexpr int kGroup = 4 * kWarp, kMmaM = WarpFragments<Tile>::kMmaM;
  static_assert(Tile::kWarpN == Tile::kTileN);

  __device__ WarpgroupAccumulator() {
#pragma unroll
    for (auto& row : this->sums) {
#pragma unroll
      for (auto& fragment : row) {
#pragma unroll
        for (float& sum : fragment) sum = opaque_zero();
      }
    }
  }
  static __device__ int first_row() { return int(threadIdx.x) / kGroup * (64 * kMmaM); }
  static __device__ int row_of(int i) {
    return first_row() + i / 2 * 64 + int(threadIdx.x) % kGroup / kWarp * 16 +
           WarpFragments<Tile>::lane() / 4 + i % 2 * 8;
  }
  // For moments_epilogue.h. A warp has a slice of kSliceRows of each 64 rows of its warpgroup, and
  // kSlices is the number of slices of all warps. moment_row returns the first of the n-th 64 rows
  // of a warpgroup.
  static constexpr int kSliceRows = 16, kSlices = Tile::kThreads / kWarp;
  static constexpr int kTileN = Tile::kTileN;
  static __device__ int moment_row(int group, int n) { return (group * kMmaM + n) * 64; }
  // Returns the descriptor of an operand, from `mn` and `k` on. SwizzledStage has wgmma's 64-byte
  // swizzle. K-major: a row has all k of one m (n), and the next core matrix has the next 8 m (n).
  // MN-major: a row has 32 m (n) of one k, the next core matrix has the next 8 k, and the next 32 m
  // (n) begin 32 rows further on. `mn` is a multiple of 32.
  template <Load kLoad, int kTileMn>
  static __device__ std::uint64_t descriptor(const SwizzledStage<kTileMn>& stage, int mn, int k) {
    constexpr std::uint32_t kRow = SwizzledStage<kTileMn>::kRow;
    constexpr std::uint32_t kBytes = kRow * sizeof(stage.data[0]);
    if constexpr (kLoad == Load::kKMajor) {
      return matrix_descriptor(&stage.data[mn * kRow + k], 16, 8 * kBytes);
    }
    return matrix_descriptor(&stage.data[(mn + k) * kRow], 32 * kBytes, 8 * kBytes);
  }
  template <class StageA, class StageB>
  __device__ void multiply_add(const StageA& a, const StageB& b) {
    const int row = first_row();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Tile::kTileK; k += 16) {
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
        wgmma<Tile::kPrecision, kA == Load::kMnMajor, kB == Load::kMnMajor>(
            this->sums[i], descriptor<kA>(a, row + i * 64, k), descriptor<kB>(b, 0, k));
      }
    }
    wgmma_commit();
  }
  // Waits for the wgmma whose operands the step after the next overwrites.
  __device__ void fence_and_wait() {
    fence_proxy_async();
    wgmma_wait();
  }
};

template <Precision kPrecision_, int kM, int kN, int kThreads_>
struct WarpgroupTile {
  static constexpr Precision kPrecision = kPrecision_;
  static constexpr int kTileM = kM, kTileN = kN, kTileK = 32, kThreads = kThreads_;
  static constexpr int kWarpM = kM / (kThreads / kWarp), kWarpN = kN;
  static constexpr int kMinBlocks = kM * kN >= 128 * 64 ? 2 : 4;
  static constexpr bool kCompiled = cuda::kWarpgroups, kTensorCores = true, kSwizzled = true;
  static constexpr bool kWarpgroups = true;
  using VectorTile = WarpgroupTile;
  template <class T, Load kA, Load kB>
  using Accumulator = WarpgroupAccumulator<WarpgroupTile, kA, kB>;
};

template <class Tile>
using OnWarpgroups = WarpgroupTile<Tile::kPrecision, Tile::kTileM, Tile::kTileN, Tile::kThreads>;

}  // namespace
}  // namespace needle::cuda
