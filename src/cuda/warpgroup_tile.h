// The tile of a block on the tensor cores of sm_90a, for bf16 and fp16 where operands come by
// words. They come to shared memory as in rounded_tile.h. From there a warpgroup, four warps,
// multiplies 64 rows of the tile by all its columns with one instruction for 16 depths (wgmma); no
// thread loads operands into registers, which are left for the sums. The products go on while the
// warps round and store the words of the next step.
#pragma once

#include "rounded_tile.h"

namespace needle::cuda {
namespace {

// The sums of a warp are 16 x kTileN, in the order of WarpSums.
template <class Tile, By kA, By kB>
struct WarpgroupPart : WarpSums<Tile> {
  static constexpr int kGroup = 4 * kWarp, kGroupRows = 64;
  static_assert(Tile::kWarpM * 4 == kGroupRows && Tile::kWarpN == Tile::kTileN);

  // The operand from `line` and `depth` on. RoundedPiece has wgmma's 64-byte swizzling: 8 rows of
  // 32 numbers are an atom. By depths a row is a line and has all depths of a step: the next atom
  // has the next 8 lines. By lines a row is a depth of 32 lines: the next atom has the next 8
  // depths, and the next 32 lines begin 32 rows further on. `line` is a multiple of 32.
  template <By kBy, int kLines>
  static __device__ std::uint64_t matrix(const RoundedPiece<kLines>& piece, int line, int depth) {
    constexpr std::uint32_t kRow = RoundedPiece<kLines>::kRow, kBytes = kRow * sizeof(piece.of[0]);
    if constexpr (kBy == By::kDepths)
      return matrix_at(&piece.of[line * kRow + depth], 16, 8 * kBytes);
    return matrix_at(&piece.of[(line + depth) * kRow], 32 * kBytes, 8 * kBytes);
  }
  template <class PieceA, class PieceB>
  __device__ void add(const PieceA& a, const PieceB& b) {
    const int line = int(threadIdx.x) / kGroup * kGroupRows;
    begin_products();
#pragma unroll
    for (int k = 0; k < Tile::kStep; k += 16) {
      multiply_add_matrices<Tile::kPrecision, kA == By::kLines, kB == By::kLines>(
          this->sums[0], matrix<kA>(a, line, k), matrix<kB>(b, 0, k));
    }
    end_products();
  }
  __device__ void finish() { wait_for_products(); }
};

template <Precision kPrecision_, int kM, int kN>
struct WarpgroupTile {
  static constexpr Precision kPrecision = kPrecision_;
  static constexpr int kTileM = kM, kTileN = kN, kStep = 32, kWarpM = 16, kWarpN = kN;
  static constexpr int kThreads = kM / kWarpM * kWarp;
  static constexpr int kBlocks = 512 / kThreads;  // of a processor
  static constexpr bool kRuns = cuda::kWarpgroups, kTensorCores = true, kRounded = true;
  static constexpr bool kWarpgroups = true;
  using OfWords = WarpgroupTile;
  template <class T, By kA, By kB>
  using Part = WarpgroupPart<WarpgroupTile, kA, kB>;
};

template <class Tile>
using OnWarpgroups = WarpgroupTile<Tile::kPrecision, Tile::kTileM, Tile::kTileN>;

}  // namespace
}  // namespace needle::cuda
