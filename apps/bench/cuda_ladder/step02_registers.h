// Step 02: a thread computes 4 x 4 elements, 16 apart. Eight numbers read from shared memory now
// serve sixteen multiply-adds, and sixteen independent sums hide the latency of an addition. The
// tile of a block is 64 x 64, so memory is also read only a quarter as often.
#pragma once

#include "step.h"

namespace ladder {

struct Registers : Tiles<64, 64> {
  static constexpr int kThreads = 256;

  template <class A, class B, class C>
  static __device__ void run(const A& a, const B& b, const C& c, const Shape& s) {
    NEEDLE_SHARED(left, float[16][65]);  // transposed; one extra column avoids bank conflicts
    NEEDLE_SHARED(right, float[16][64]);
    const int thread = int(threadIdx.x), y = thread / 16, x = thread % 16;
    float sums[4][4] = {};
    for (int k = 0; k < s.k; k += 16) {
      for (int i = 0; i < 4; ++i) {
        left[x][y + 16 * i] = a.at(row() + y + 16 * i, k + x);
        right[thread / 64 + 4 * i][thread % 64] =
            b.at(k + thread / 64 + 4 * i, column() + thread % 64);
      }
      __syncthreads();
      for (int depth = 0; depth < 16; ++depth) {
        float l[4], r[4];
        for (int i = 0; i < 4; ++i) l[i] = left[depth][y + 16 * i];
        for (int j = 0; j < 4; ++j) r[j] = right[depth][x + 16 * j];
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < 4; ++j) sums[i][j] += l[i] * r[j];
        }
      }
      __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) c.put(row() + y + 16 * i, column() + x + 16 * j, sums[i][j]);
    }
  }
};

}  // namespace ladder
