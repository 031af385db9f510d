// Step 05: packing b. A panel of b, as wide as a tile, is copied so that the tile reads it
// sequentially: without strides, without a new page at each step, and with hardware prefetching.
// The copy is made once and read m / 6 times. k is divided into slices, so that a panel stays in
// the first-level cache for all rows; from the second slice on the tile adds to c.
//
// From here on the tile and the packing are those of the library (src/cpu/gemm.h, gemm_pack.h);
// edges are tiles padded with zeros, of which only the valid part is stored.
#include <vector>

#include "cpu/gemm_pack.h"
#include "step.h"

void ladder::packed_b(const Product& x) {
  /// BEGIN SOLUTION [gemm-packed-b]
  using namespace needle::cpu::NEEDLE_ISA;
  using B = Blocking<float>;
  std::vector<float> panel(static_cast<std::size_t>(B::KC * B::NR));
  for (long p = 0; p < x.k; p += B::KC) {
    const long depth = smaller(B::KC, x.k - p);
    for (long j = 0; j < x.n; j += B::NR) {
      pack_b(x.b + p * x.n + j, x.n, 1, depth, smaller(B::NR, x.n - j), panel.data());
      for (long i = 0; i < x.m; i += B::MR) {
        const TileOut<float> out{x.c + i * x.n + j,       x.n,  1, smaller(B::MR, x.m - i),
                                 smaller(B::NR, x.n - j), p > 0};
        const float* rows[B::MR];
        for (long r = 0; r < B::MR; ++r) rows[r] = x.a + smaller(i + r, x.m - 1) * x.k + p;
        rows_tile<float, B::MR>(1, depth, rows, 1, panel.data(), B::NR, out);
      }
    }
  }
  /// END SOLUTION
}
