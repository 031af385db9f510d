// Step 04: a tile of the result in registers. Six rows share each load of b, and each element of a
// is used for two vectors: 12 multiply-adds for 8 loads, where step 03 had 2 for 3. Twelve sums
// also hide the four cycles that each multiply-add takes. 12 sums, 2 vectors of b and one of a fill
// the 16 registers of AVX2; every fast product is built on such a tile.
//
// The remaining limit: the tile reads b with a stride of a whole row, a new page at each step.
#include "step.h"

namespace {

constexpr int kRows = 6;

void tile(const ladder::Product& x, long i, long j) {
  /// BEGIN SOLUTION [gemm-register-tile]
  using namespace ladder;
  Vector sum[kRows][2] = {};
  const float *a = x.a + i * x.k, *b = x.b + j;
  for (long p = 0; p < x.k; ++p, b += x.n) {
    const Vector left = load(b), right = load(b + kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] += a[r * x.k + p] * left;
      sum[r][1] += a[r * x.k + p] * right;
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    store(x.c + (i + r) * x.n + j, sum[r][0]);
    store(x.c + (i + r) * x.n + j + kLanes, sum[r][1]);
  }
  /// END SOLUTION
}

}  // namespace

void ladder::register_tile(const Product& x) {
  const long rows = x.m / kRows * kRows, columns = x.n / (2 * kLanes) * (2 * kLanes);
  for (long j = 0; j < columns; j += 2 * kLanes) {
    for (long i = 0; i < rows; i += kRows) tile(x, i, j);
  }
  edge(x, rows, x.m, 0, columns);
  edge(x, 0, x.m, columns, x.n);
}
