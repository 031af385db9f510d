// The tile of a block on tensor cores: operands float32 in shared memory, rounded when they become
// a warp's registers, sums float32. A warp has kWarpM x kWarpN of the tile, as pieces of 16 x 8
// that one instruction adds to; a word loaded is used kWarpN / 8 (kWarpM / 16) times. Rows of
// shared memory are 8 numbers longer than the tile, which puts the 4 depths x 8 lines that a warp
// reads at once into 32 different banks. gemm.h brings the operands; precision.h says who asks for
// it. Operands of bf16 and fp16 that come by words have a shorter way: rounded_tile.h.
#pragma once

#include "rounded_tile.h"

namespace needle::cuda {
namespace {

template <Precision kPrecision, class Tile, By kA, By kB>
struct WarpPart : WarpSums<Tile> {
  static constexpr int kDepth = kPrecision == Precision::kTf32 ? 8 : 16;  // of one instruction
  static_assert(Tile::kStep % kDepth == 0);
  using WarpSums<Tile>::kDown, WarpSums<Tile>::kAcross, WarpSums<Tile>::lane;

  // The instruction's depths 2t and 2t + 1 are t and t + 4 here: the products may be added in any
  // order, as long as both operands have the same.
  template <bool kDeep, class Piece>
  static __device__ float element(const Piece& piece, int depth, int line) {
    if constexpr (kDeep) return piece[line][depth];
    return piece[depth][line];
  }
  template <bool kDeep, class Piece>
  static __device__ std::uint32_t word(const Piece& piece, int depth, int line) {
    const float first = element<kDeep>(piece, depth, line);
    if constexpr (kPrecision == Precision::kTf32) return tf32(first);
    return pair<kPrecision>(first, element<kDeep>(piece, depth + 4, line));
  }

  template <class PieceA, class PieceB>
  __device__ void add(const PieceA& a, const PieceB& b) {
    constexpr bool kDeepA = kA == By::kDepths, kDeepB = kB == By::kDepths;
    const int row = this->first_row() + lane() / 4, column = this->first_column() + lane() / 4;
#pragma unroll
    for (int k = 0; k < Tile::kStep; k += kDepth) {
      const int depth = k + lane() % 4;
      std::uint32_t left[kDown][4], right[kAcross][2];
#pragma unroll
      for (int i = 0; i < kDown * 4; ++i) {
        left[i / 4][i % 4] =
            word<kDeepA>(a, depth + i % 4 / 2 * (kDepth / 2), row + i / 4 * 16 + i % 2 * 8);
      }
#pragma unroll
      for (int j = 0; j < kAcross * 2; ++j) {
        right[j / 2][j % 2] = word<kDeepB>(b, depth + j % 2 * (kDepth / 2), column + j / 2 * 8);
      }
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          multiply_add<kPrecision>(this->sums[i][j], left[i], right[j]);
        }
      }
    }
  }
};

template <Precision kPrecision, int kM, int kN, int kK, int kWarpM_, int kWarpN_>
struct TensorTile {
  static constexpr int kTileM = kM, kTileN = kN, kStep = kK, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kThreads = (kM / kWarpM) * (kN / kWarpN) * kWarp;
  static constexpr int kPadding = 32;  // bytes
  // Of a processor; more of the largest, or of the smallest, would spill.
  static constexpr int kBlocks = kM * kN > 128 * 64 ? 1 : kThreads == 256 ? 2 : 3;
  static constexpr bool kRuns = cuda::kTensorCores, kTensorCores = true, kRounded = false;
  using OfWords = std::conditional_t<kPrecision == Precision::kTf32, TensorTile,
                                     RoundedTile<kPrecision, kM, kN, 2 * kK, kM / 2, kWarpN>>;
  template <class T, By kA = By::kElements, By kB = By::kElements>
  using Part = WarpPart<kPrecision, TensorTile, kA, kB>;
};

}  // namespace
}  // namespace needle::cuda
