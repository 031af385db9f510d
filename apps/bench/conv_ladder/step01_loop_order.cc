// Step 01: another order of the same loops, with output channels innermost. The weights of a tap
// and an input channel, and the channels of a pixel of the result, are contiguous, so the compiler
// vectorises the loop. The bounds are checked once for all channels.
//
// The remaining limit is memory: each multiply-add takes two loads and a store of the sum.
#include "step.h"

void ladder::loop_order(const Convolution& v) {
  /// BEGIN SOLUTION [conv-loop-order]
  std::memset(v.out, 0, static_cast<std::size_t>(v.n * v.h * v.w * v.o) * sizeof(float));
  for (long row = 0; row < v.n * v.h; ++row) {
    for (long j = 0; j < v.w; ++j) {
      float* out = v.out + (row * v.w + j) * v.o;
      for (long tap = 0; tap < 9; ++tap) {
        const long y = row % v.h + tap / 3 - 1, x = j + tap % 3 - 1;
        if (y < 0 || y >= v.h || x < 0 || x >= v.w) continue;
        const float* from = v.x + ((row / v.h * v.h + y) * v.w + x) * v.c;
        const float* weight = v.weight + tap * v.c * v.o;
        for (long c = 0; c < v.c; ++c, weight += v.o) {
          const float a = from[c];
          for (long o = 0; o < v.o; ++o) out[o] += a * weight[o];
        }
      }
    }
  }
  /// END SOLUTION
}
