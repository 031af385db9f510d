// What every step of the ladders on a GPU is: c (m x n) = a (m x k) @ b (k x n), wherever the
// elements come from. The operands give them: a.at(row, k) and b.at(k, column), 0 outside, and
// a.four(row, k), four neighbours along k, b.four(k, column), four along columns;
// c.put(row, column, value) leaves out what is outside. gemm.cu and conv.cu have both kinds.
#pragma once

#include "cuda/device.h"
#include "cuda/tensor_tile.h"

namespace ladder {

struct Shape {
  int m, n, k;
};

struct alignas(16) Four {
  float of[4];
};

// Blocks for tiles of kTileM x kTileN; tile of the block that runs.
template <int kTileM, int kTileN>
struct Tiles {
  static needle::cuda::Grid grid(const Shape& s) {
    return {unsigned((s.n + kTileN - 1) / kTileN), unsigned((s.m + kTileM - 1) / kTileM)};
  }
  static __device__ int row() { return int(blockIdx.y) * kTileM; }
  static __device__ int column() { return int(blockIdx.x) * kTileN; }
};

}  // namespace ladder
