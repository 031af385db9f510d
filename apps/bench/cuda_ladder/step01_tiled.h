// Step 01: a block computes a tile. Its threads together copy 16 columns of a and 16 rows of b into
// shared memory, synchronise, and read them from there: an element is loaded from memory once per
// tile, not once per product. Each multiply-add still reads two numbers from shared memory.
#pragma once

#include "step.h"

namespace ladder {

struct Tiled : Tiles<16, 16> {
  static constexpr int kThreads = 256;

  template <class A, class B, class C>
  static __device__ void run(const A& a, const B& b, const C& c, const Shape& s) {
    NEEDLE_SHARED(left, float[16][16]);
    NEEDLE_SHARED(right, float[16][16]);
    const int y = int(threadIdx.x) / 16, x = int(threadIdx.x) % 16;
    float sum = 0;
    for (int k = 0; k < s.k; k += 16) {
      left[y][x] = a.at(row() + y, k + x);
      right[y][x] = b.at(k + y, column() + x);
      __syncthreads();
      for (int i = 0; i < 16; ++i) sum += left[y][i] * right[i][x];
      __syncthreads();
    }
    c.put(row() + y, column() + x, sum);
  }
};

}  // namespace ladder
