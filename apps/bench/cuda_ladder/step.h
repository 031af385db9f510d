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

using needle::cuda::Four;

// The number of blocks for tiles of kTileM x kTileN, and the tile of the current block.
template <int kTileM, int kTileN>
struct Tiles {
  static needle::cuda::Grid grid(const Shape& s) {
    return {unsigned((s.n + kTileN - 1) / kTileN), unsigned((s.m + kTileM - 1) / kTileM)};
  }
  static __device__ int row() { return int(blockIdx.y) * kTileM; }
  static __device__ int column() { return int(blockIdx.x) * kTileN; }
  // Stores a warp's sums (src/cuda/rounded_tile.h).
  template <class Part, class C>
  static __device__ void put(const Part& part, const C& c) {
#pragma unroll
    for (int i = 0; i < Part::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Part::kColumns; ++j) {
        c.put(row() + part.row_of(i), column() + part.column_of(j), part.sum(i, j));
      }
    }
  }
};

}  // namespace ladder
