// Step 01: another order of the same loops. With j innermost, b and c are read along their rows:
// every cache line is used completely, and neighbouring j are independent, so the compiler
// vectorises the loop. Nothing else has changed.
//
// The remaining limit: each multiplication loads and stores an element of c.
#include "step.h"

void ladder::loop_order(const Product& x) {
  /// BEGIN SOLUTION [gemm-loop-order]
  for (long i = 0; i < x.m; ++i) {
    float* c = x.c + i * x.n;
    for (long j = 0; j < x.n; ++j) c[j] = 0;
    for (long p = 0; p < x.k; ++p) {
      const float a = x.a[i * x.k + p];
      const float* b = x.b + p * x.n;
      for (long j = 0; j < x.n; ++j) c[j] += a * b[j];
    }
  }
  /// END SOLUTION
}
