// Step 04: tensor cores. One instruction of a warp multiplies 16 x 8 by 8 x 8: 1024 multiply-adds
// for six numbers per lane. Operands are rounded to TF32 (11 bits); sums stay float32.
// src/cuda/tensor_tile.h defines how lanes share the pieces. GPUs before sm_80 lack this
// instruction, so the step does not run there.
#pragma once

#include "step.h"

namespace ladder {

struct TensorCores : Tiles<128, 64> {
  using Tile = needle::cuda::TensorTile<needle::cuda::Precision::kTf32, 128, 64, 16, 32, 32>;
  static constexpr int kThreads = Tile::kThreads;

  template <class A, class B, class C>
  static __device__ void run(const A& a, const B& b, const C& c, const Shape& s) {
    if constexpr (Tile::kCompiled) {
      NEEDLE_SHARED(left, float[16][128 + 8]);
      NEEDLE_SHARED(right, float[16][64 + 8]);
      const int thread = int(threadIdx.x);
      Tile::Accumulator<float> accumulator;
      for (int k = 0; k < s.k; k += 16) {
        const int deep = thread % 4 * 4;
        for (int line = thread / 4; line < 128; line += kThreads / 4) {
          const Float4 four = a.four(row() + line, k + deep);
          for (int i = 0; i < 4; ++i) left[deep + i][line] = four.values[i];
        }
        *reinterpret_cast<Float4*>(&right[thread / 16][thread % 16 * 4]) =
            b.four(k + thread / 16, column() + thread % 16 * 4);
        __syncthreads();
        accumulator.multiply_add(left, right);
        __syncthreads();
      }
      put(accumulator, c);
    }
  }
};

}  // namespace ladder
