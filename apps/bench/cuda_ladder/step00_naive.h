// Step 00: the definition, one thread per element. The threads of a warp have neighbouring columns:
// they share the element of a and read neighbours of b, so memory is read in whole lines. But every
// multiply-add waits for two loads, and each element is loaded as often as it is used.
#pragma once

#include "step.h"

namespace ladder {

struct Naive {
  static constexpr int kThreads = 256;
  static dim3 grid(const Shape& s) {
    return {unsigned((long(s.m) * s.n + kThreads - 1) / kThreads)};
  }

  template <class A, class B, class C>
  static __device__ void run(const A& a, const B& b, const C& c, const Shape& s) {
    const long e = long(blockIdx.x) * kThreads + threadIdx.x;
    const int row = int(e / s.n), column = int(e % s.n);
    if (row >= s.m) return;
    float sum = 0;
    for (int k = 0; k < s.k; ++k) sum += a.at(row, k) * b.at(k, column);
    c.put(row, column, sum);
  }
};

}  // namespace ladder
