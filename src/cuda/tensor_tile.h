// A block's tile on tensor cores with scalar loads. Operands are float32 in shared memory and are
// rounded when they become a warp's fragments; accumulators are float32. A warp has kWarpM x kWarpN
// of the tile as fragments of 16 x 8; one instruction adds to one of them. A loaded value is used
// kWarpN / 8 (or kWarpM / 16) times. Rows of shared memory are padded by 8 numbers, which puts the
// 4 x 8 elements (k x mn) that a warp reads together into 32 different banks. precision.h says when
// tensor cores are used. bf16 and fp16 with vector loads use swizzled_tile.h.
#pragma once

#include "swizzled_tile.h"

namespace needle::cuda {
namespace {

template <Precision kPrecision, class Tile, Load kA, Load kB>
struct WarpAccumulator : WarpFragments<Tile> {
  static constexpr int kMmaK = kPrecision == Precision::kTf32 ? 8 : 16;
  static_assert(Tile::kTileK % kMmaK == 0);
  using WarpFragments<Tile>::kMmaM, WarpFragments<Tile>::kMmaN, WarpFragments<Tile>::lane;

  // The instruction's k indices 2t and 2t + 1 stand for t and t + 4 here. Any order of the products
  // is right if both operands have the same one.
  template <bool kKMajor, class Stage>
  static __device__ float element(const Stage& stage, int k, int mn) {
    if constexpr (kKMajor) return stage[mn][k];
    return stage[k][mn];
  }
  template <bool kKMajor, class Stage>
  static __device__ std::uint32_t rounded(const Stage& stage, int k, int mn) {
    const float first = element<kKMajor>(stage, k, mn);
    if constexpr (kPrecision == Precision::kTf32) return tf32(first);
    return pack<kPrecision>(first, element<kKMajor>(stage, k + 4, mn));
  }

  template <class StageA, class StageB>
  __device__ void multiply_add(const StageA& a, const StageB& b) {
    constexpr bool kKMajorA = kA == Load::kKMajor, kKMajorB = kB == Load::kKMajor;
    const int row = this->first_row() + lane() / 4, column = this->first_column() + lane() / 4;
#pragma unroll
    for (int first = 0; first < Tile::kTileK; first += kMmaK) {
      const int k = first + lane() % 4;
      std::uint32_t left[kMmaM][4], right[kMmaN][2];
#pragma unroll
      for (int i = 0; i < kMmaM * 4; ++i) {
        left[i / 4][i % 4] =
            rounded<kKMajorA>(a, k + i % 4 / 2 * (kMmaK / 2), row + i / 4 * 16 + i % 2 * 8);
      }
#pragma unroll
      for (int j = 0; j < kMmaN * 2; ++j) {
        right[j / 2][j % 2] = rounded<kKMajorB>(b, k + j % 2 * (kMmaK / 2), column + j / 2 * 8);
      }
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
        for (int j = 0; j < kMmaN; ++j) {
          mma_sync<kPrecision>(this->sums[i][j], left[i], right[j]);
        }
      }
    }
  }
};

template <Precision kPrecision, int kM, int kN, int kK, int kWarpM_, int kWarpN_>
struct TensorTile {
  static constexpr int kTileM = kM, kTileN = kN, kTileK = kK, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kThreads = (kM / kWarpM) * (kN / kWarpN) * kWarp;
  static constexpr int kPadding = 32;  // bytes
  // More blocks of the largest tile, or of the smallest, would spill.
  static constexpr int kMinBlocks = kM * kN > 128 * 64 ? 1 : kThreads == 256 ? 2 : 3;
  static constexpr bool kCompiled = cuda::kTensorCores, kTensorCores = true, kSwizzled = false;
  using VectorTile = std::conditional_t<kPrecision == Precision::kTf32, TensorTile,
                                        SwizzledTile<kPrecision, kM, kN, 2 * kK, kM / 2, kWarpN>>;
  template <class T, Load kA = Load::kScalar, Load kB = Load::kScalar>
  using Accumulator = WarpAccumulator<kPrecision, TensorTile, kA, kB>;
};

}  // namespace
}  // namespace needle::cuda
