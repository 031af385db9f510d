// Step 03: sums in registers. A vector holds several neighbours of a row of c (eight floats with
// AVX2); two vectors stay in registers for the whole sum over p and are stored once. `Vector` is a
// type of the compiler: its + and * are single instructions and fuse into one. The loop over j is
// the outer one, so that the columns of b in use stay in cache for all rows.
//
// Two sums at a time are too few: a fused multiply-add takes four cycles and two can start in each
// cycle, so eight sums should be in flight. Also, each vector of b is loaded for one row only.
#include "step.h"

void ladder::vectors(const Product& x) {
  /// BEGIN SOLUTION [gemm-vectors]
  const long whole = x.n / (2 * kLanes) * (2 * kLanes);
  for (long j = 0; j < whole; j += 2 * kLanes) {
    for (long i = 0; i < x.m; ++i) {
      Vector left = {}, right = {};
      const float* b = x.b + j;
      for (long p = 0; p < x.k; ++p, b += x.n) {
        const float a = x.a[i * x.k + p];
        left += a * load(b);
        right += a * load(b + kLanes);
      }
      store(x.c + i * x.n + j, left);
      store(x.c + i * x.n + j + kLanes, right);
    }
  }
  edge(x, 0, x.m, whole, x.n);
  /// END SOLUTION
}
