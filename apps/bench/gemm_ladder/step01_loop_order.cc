// Step 01: another order of the same loops. With j innermost, b and c are read along their rows:
// every cache line is used whole, and neighbouring j do not depend on each other, so the compiler
// makes vectors of them. Nothing else has changed.
//
// What limits it now: for each multiplication a piece of c is loaded and stored again.
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
