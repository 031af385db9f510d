// Step 02: blocks for the cache. Step 01 reads all of b for every row of a; if b is larger than the
// cache, it is read from memory each time. Here all rows use a block of b (64 x 512 floats, 128
// KiB) before the next block is read.
//
// The inner loop is that of step 01, so this helps for large matrices only.
#include "step.h"

void ladder::cache_blocks(const Product& x) {
  /// BEGIN SOLUTION [gemm-cache-blocks]
  constexpr long kDepth = 64, kColumns = 512;
  for (long e = 0; e < x.m * x.n; ++e) x.c[e] = 0;
  for (long j0 = 0; j0 < x.n; j0 += kColumns) {
    for (long p0 = 0; p0 < x.k; p0 += kDepth) {
      const long j_end = smaller(j0 + kColumns, x.n), p_end = smaller(p0 + kDepth, x.k);
      for (long i = 0; i < x.m; ++i) {
        for (long p = p0; p < p_end; ++p) {
          const float a = x.a[i * x.k + p];
          for (long j = j0; j < j_end; ++j) x.c[i * x.n + j] += a * x.b[p * x.n + j];
        }
      }
    }
  }
  /// END SOLUTION
}
