// Step 05: operands rounded once. Step 04 rounds a number each time a warp reads it. Here a thread
// rounds four numbers to bf16 on their way to shared memory, where they take half the space, and
// one ldmatrix brings a warp what took it 8 loads and as many conversions: 32 multiply-adds of
// tensor cores need 12 loads. src/cuda/rounded_tile.h says where the numbers lie. Step 06 needs
// none: on sm_90 four warps multiply what lies there (src/cuda/warpgroup_tile.h).
#pragma once

#include "cuda/warpgroup_tile.h"
#include "step.h"

namespace ladder {

template <class Tile>
struct Rounded : Tiles<128, 128> {
  using Piece = needle::cuda::RoundedPiece<128>;
  static constexpr int kThreads = Tile::kThreads;

  static __device__ void write(Piece& piece, int row, int column, const Four& four) {
    using needle::cuda::pair, needle::cuda::store_two;
    store_two(&piece.of[Piece::place(row, column)], pair<Tile::kPrecision>(four.of[0], four.of[1]),
              pair<Tile::kPrecision>(four.of[2], four.of[3]));
  }

  template <class A, class B, class C>
  static __device__ void run(const A& a, const B& b, const C& c, const Shape& s) {
    if constexpr (Tile::kRuns) {
      using needle::cuda::By;
      NEEDLE_SHARED(left, Piece);   // a row of it is a row of a
      NEEDLE_SHARED(right, Piece);  // a row is 32 columns of a row of b
      const int down = int(threadIdx.x) / 8, across = int(threadIdx.x) % 8 * 4;
      typename Tile::template Part<float, By::kDepths, By::kLines> part;
      for (int k = 0; k < s.k; k += 32) {
#pragma unroll
        for (int i = 0; i < 128; i += 32) {
          write(left, i + down, across, a.four(row() + i + down, k + across));
          write(right, i + down, across, b.four(k + down, column() + i + across));
        }
        if constexpr (Tile::kWarpgroups) needle::cuda::show_to_warpgroups();
        __syncthreads();
        part.add(left, right);
        part.settle();
        __syncthreads();
      }
      put(part, c);
    }
  }
};

using ByWarps =
    Rounded<needle::cuda::RoundedTile<needle::cuda::Precision::kBf16, 128, 128, 32, 64, 32>>;
using ByWarpgroups =
    Rounded<needle::cuda::WarpgroupTile<needle::cuda::Precision::kBf16, 128, 128, 256>>;

}  // namespace ladder
