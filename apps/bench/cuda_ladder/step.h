// The problem of every step of the ladders on a GPU: c (m x n) = a (m x k) @ b (k x n). The
// operands provide the elements: a.at(row, k) and b.at(k, column), 0 outside; a.four(row, k)
// returns four neighbours along k, b.four(k, column) four along columns; c.put(row, column, value)
// ignores positions outside. gemm.cu and conv.cu define both kinds of operands.
#pragma once

#include "cuda/device.h"
#include "cuda/tensor_tile.h"

namespace ladder {

struct Shape {
  int m, n, k;
};

using needle::cuda::Float4;

// The number of blocks for tiles of kTileM x kTileN, and the tile of the current block.
template <int kTileM, int kTileN>
struct Tiles {
  static dim3 grid(const Shape& s) {
    return {unsigned((s.n + kTileN - 1) / kTileN), unsigned((s.m + kTileM - 1) / kTileM)};
  }
  static __device__ int row() { return int(blockIdx.y) * kTileM; }
  static __device__ int column() { return int(blockIdx.x) * kTileN; }
  // Stores a warp's accumulators (src/cuda/swizzled_tile.h).
  template <class Accumulator, class C>
  static __device__ void put(const Accumulator& accumulator, const C& c) {
#pragma unroll
    for (int i = 0; i < Accumulator::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Accumulator::kColumns; ++j) {
        c.put(row() + accumulator.row_of(i), column() + accumulator.column_of(j),
              accumulator.sum(i, j));
      }
    }
  }
};

}  // namespace ladder
