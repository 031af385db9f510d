// Step 05: operands rounded once. Step 04 rounds a number each time a warp reads it. Here a thread
// rounds four numbers to bf16 on their way to shared memory, where they take half the space, and
// one ldmatrix replaces 8 loads and as many conversions of a warp: 32 multiply-adds of tensor cores
// need 12 loads. src/cuda/swizzled_tile.h defines the layout in shared memory. Step 06 needs no
// such loads: on sm_90 four warps multiply operands in shared memory directly
// (src/cuda/sm90/warpgroup_tile.h).
#pragma once

#include "cuda/sm90/warpgroup_tile.h"
#include "step.h"

namespace ladder {

template <class Tile>
struct Rounded : Tiles<128, 128> {
  using Stage = needle::cuda::SwizzledStage<128>;
  static constexpr int kThreads = Tile::kThreads;

  static __device__ void write(Stage& stage, int row, int column, const Float4& four) {
    using needle::cuda::pack, needle::cuda::store_shared_v2;
    store_shared_v2(&stage.data[Stage::position(row, column)],
                    pack<Tile::kPrecision>(four.values[0], four.values[1]),
                    pack<Tile::kPrecision>(four.values[2], four.values[3]));
  }

  template <class A, class B, class C>
  static __device__ void run(const A& a, const B& b, const C& c, const Shape& s) {
    if constexpr (Tile::kCompiled) {
      using needle::cuda::Load;
      NEEDLE_SHARED(left, Stage);   // a row of it is a row of a
      NEEDLE_SHARED(right, Stage);  // a row is 32 columns of a row of b
      const int down = int(threadIdx.x) / 8, across = int(threadIdx.x) % 8 * 4;
      typename Tile::template Accumulator<float, Load::kKMajor, Load::kMnMajor> accumulator;
      for (int k = 0; k < s.k; k += 32) {
#pragma unroll
        for (int i = 0; i < 128; i += 32) {
          write(left, i + down, across, a.four(row() + i + down, k + across));
          write(right, i + down, across, b.four(k + down, column() + i + across));
        }
        if constexpr (Tile::kWarpgroups) needle::cuda::fence_proxy_async();
        __syncthreads();
        accumulator.multiply_add(left, right);
        accumulator.fence_and_wait();
        __syncthreads();
      }
      put(accumulator, c);
    }
  }
};

using ByWarps =
    Rounded<needle::cuda::SwizzledTile<needle::cuda::Precision::kBf16, 128, 128, 32, 64, 32>>;
using ByWarpgroups =
    Rounded<needle::cuda::WarpgroupTile<needle::cuda::Precision::kBf16, 128, 128, 256>>;

}  // namespace ladder
