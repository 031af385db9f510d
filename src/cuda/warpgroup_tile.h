// The tile of a block on the tensor cores of sm_90a, for bf16 and fp16 where operands come by
// words. They come to shared memory as in rounded_tile.h. From there a warpgroup, four warps,
// multiplies 64 rows of the tile by all its columns with one instruction for 16 depths (wgmma); no
// thread loads operands into registers, which are left for the sums. The products go on while the
// warps round and store the words of the next step.
#pragma once

#include "rounded_tile.h"

namespace needle::cuda {
namespace {

// A warpgroup has 64 kDown rows of the tile and all its columns; of each 64 rows a warp has 16, of
// which a lane has the sums that it would have of multiply_add.
template <class Tile, By kA, By kB>
struct WarpgroupPart : WarpSums<Tile> {
  static constexpr int kGroup = 4 * kWarp, kDown = WarpSums<Tile>::kDown;
  static_assert(Tile::kWarpN == Tile::kTileN);

  __device__ WarpgroupPart() {
#pragma unroll
    for (auto& across : this->sums) {
#pragma unroll
      for (auto& piece : across) {
#pragma unroll
        for (float& sum : piece) sum = zero();
      }
    }
  }
  static __device__ int first_row() { return int(threadIdx.x) / kGroup * (64 * kDown); }
  static __device__ int row_of(int i) {
    return first_row() + i / 2 * 64 + int(threadIdx.x) % kGroup / kWarp * 16 +
           WarpSums<Tile>::lane() / 4 + i % 2 * 8;
  }
  // For moments.h: a warp has a slice of kSliceRows of each 64 rows of its warpgroup, kSlices are
  // those of all warps, and moment_row is the first of the n-th 64 rows of a warpgroup.
  static constexpr int kSliceRows = 16, kSlices = Tile::kThreads / kWarp;
  static constexpr int kTileN = Tile::kTileN;
  static __device__ int moment_row(int group, int n) { return (group * kDown + n) * 64; }
  // The operand from `line` and `depth` on. RoundedPiece has wgmma's 64-byte swizzling: 8 rows of
  // 32 numbers are an atom. By depths a row is a line and has all depths of a step: the next atom
  // has the next 8 lines. By lines a row is a depth of 32 lines: the next atom has the next 8
  // depths, and the next 32 lines begin 32 rows further on. `line` is a multiple of 32.
  template <By kBy, int kLines>
  static __device__ std::uint64_t matrix(const RoundedPiece<kLines>& piece, int line, int depth) {
    constexpr std::uint32_t kRow = RoundedPiece<kLines>::kRow, kBytes = kRow * sizeof(piece.of[0]);
    if constexpr (kBy == By::kDepths) {
      return matrix_at(&piece.of[line * kRow + depth], 16, 8 * kBytes);
    }
    return matrix_at(&piece.of[(line + depth) * kRow], 32 * kBytes, 8 * kBytes);
  }
  template <class PieceA, class PieceB>
  __device__ void add(const PieceA& a, const PieceB& b) {
    const int row = first_row();
    begin_products();
#pragma unroll
    for (int k = 0; k < Tile::kStep; k += 16) {
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        multiply_add_matrices<Tile::kPrecision, kA == By::kLines, kB == By::kLines>(
            this->sums[i], matrix<kA>(a, row + i * 64, k), matrix<kB>(b, 0, k));
      }
    }
    end_products();
  }
  // Before a barrier: the products of the present step have ended, whose pieces the next but one
  // writes over, and those of the next step are shown.
  __device__ void settle() {
    show_to_warpgroups();
    wait_for_products();
  }
};

template <Precision kPrecision_, int kM, int kN, int kThreads_>
struct WarpgroupTile {
  static constexpr Precision kPrecision = kPrecision_;
  static constexpr int kTileM = kM, kTileN = kN, kStep = 32, kThreads = kThreads_;
  static constexpr int kWarpM = kM / (kThreads / kWarp), kWarpN = kN;
  static constexpr int kBlocks = kM * kN >= 128 * 64 ? 2 : 4;  // of a processor
  static constexpr bool kRuns = cuda::kWarpgroups, kTensorCores = true, kRounded = true;
  static constexpr bool kWarpgroups = true;
  using OfWords = WarpgroupTile;
  template <class T, By kA, By kB>
  using Part = WarpgroupPart<WarpgroupTile, kA, kB>;
};

template <class Tile>
using OnWarpgroups = WarpgroupTile<Tile::kPrecision, Tile::kTileM, Tile::kTileN, Tile::kThreads>;

}  // namespace
}  // namespace needle::cuda
