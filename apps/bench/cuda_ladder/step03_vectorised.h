// Step 03: four neighbours at a time from memory and from shared memory. This needs a quarter of
// the load instructions, which in step 02 are half as many as the multiply-adds. A thread computes
// 8 x 8 elements of a tile of 128 x 128, as 2 x 2 squares of four neighbours.
#pragma once

#include "step.h"

namespace ladder {

struct Vectorised : Tiles<128, 128> {
  static constexpr int kThreads = 256;

  static __device__ void read(const float* from, int place, float (&values)[8]) {
    for (int half = 0; half < 2; ++half) {
      const Float4 four = *reinterpret_cast<const Float4*>(from + 64 * half + 4 * place);
      for (int i = 0; i < 4; ++i) values[4 * half + i] = four.values[i];
    }
  }

  template <class A, class B, class C>
  static __device__ void run(const A& a, const B& b, const C& c, const Shape& s) {
    NEEDLE_SHARED(left, float[8][132]);  // transposed; 4 extra columns: see step 02
    NEEDLE_SHARED(right, float[8][128]);
    const int thread = int(threadIdx.x), y = thread / 16, x = thread % 16;
    float sums[8][8] = {};
    for (int k = 0; k < s.k; k += 8) {
      const int line = thread / 2, deep = thread % 2 * 4;
      const Float4 four = a.four(row() + line, k + deep);
      for (int i = 0; i < 4; ++i) left[deep + i][line] = four.values[i];
      *reinterpret_cast<Float4*>(&right[thread / 32][thread % 32 * 4]) =
          b.four(k + thread / 32, column() + thread % 32 * 4);
      __syncthreads();
#pragma unroll
      for (int depth = 0; depth < 8; ++depth) {
        float l[8], r[8];
        read(left[depth], y, l);
        read(right[depth], x, r);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
#pragma unroll
          for (int j = 0; j < 8; ++j) sums[i][j] += l[i] * r[j];
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        c.put(row() + i / 4 * 64 + y * 4 + i % 4, column() + j / 4 * 64 + x * 4 + j % 4,
              sums[i][j]);
      }
    }
  }
};

}  // namespace ladder
