// Step 06: packing a as well, the arrangement of BLIS. Blocks nest like the caches: a panel of b is
// in the first level, a block of MC rows of a in the second, and as many panels of b as fit in the
// third. Each copy is used many times: those of a by all columns, those of b by all rows.
//
// Packing a pays if its rows are a power of two apart, because they would share a set of the first
// level; otherwise step 05 is faster, and the library chooses.
#include <vector>

#include "cpu/gemm_pack.h"
#include "step.h"

namespace {

using namespace needle::cpu::NEEDLE_ISA;
using B = Blocking<float>;
constexpr long MC = 192 / B::MR * B::MR;  // a block of a (MC x KC) fits a part of L2
constexpr long NC = 1024;                 // columns of b packed at a time

// Multiplies a block of rows with all panels of one slice of b.
void multiply(long m, long n, long k, const float* a, const float* b, float* c, long stride,
              bool add) {
  for (long j = 0; j < n; j += B::NR) {
    for (long i = 0; i < m; i += B::MR) {
      packed_tile<float>(
          k, a + i * k, b + j * k, B::NR,
          {c + i * stride + j, stride, 1, smaller(B::MR, m - i), smaller(B::NR, n - j), add});
    }
  }
}

}  // namespace

void ladder::packed_both(const Product& x) {
  /// BEGIN SOLUTION [gemm-packed-both]
  std::vector<float> b(static_cast<std::size_t>(B::KC * NC));
  std::vector<float> a(static_cast<std::size_t>((MC + B::MR) * B::KC));
  for (long j = 0; j < x.n; j += NC) {
    const long n = smaller(NC, x.n - j);
    for (long p = 0; p < x.k; p += B::KC) {
      const long k = smaller(B::KC, x.k - p);
      pack_b(x.b + p * x.n + j, x.n, 1, k, n, b.data());
      for (long i = 0; i < x.m; i += MC) {
        const long m = smaller(MC, x.m - i);
        pack_a(x.a + i * x.k + p, x.k, 1, m, k, a.data());
        multiply(m, n, k, a.data(), b.data(), x.c + i * x.n + j, x.n, p > 0);
      }
    }
  }
  /// END SOLUTION
}
