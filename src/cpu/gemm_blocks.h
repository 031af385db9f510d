// Computes the blocks of large products from the sizes of the caches, by the model of Low, Igual,
// Smith and Quintana-Orti, "Analytical Modeling Is Enough for High-Performance BLIS" (2016). The
// roles of the operands are exchanged, because here vectors lie along the columns. The rows of one
// tile of A stay in L1 while all columns of a block of B pass; the block of B stays in L2 while all
// rows of a task pass.
#pragma once

#include "caches.h"
#include "core/thread_pool.h"
#include "gemm_tile.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// A tile takes MR * k cycles of two fused multiply-adds, and its panel of B takes NR * k / 2 cycles
// from L3 at 8 bytes a cycle, which is slow. Over 16 tiles these are at most 7 %.
constexpr Index kTilesPerPanel = 16;
constexpr Index kLeastTiles = 8;  // rows of tiles that are worth a task for one more thread
constexpr Index kShares = 4;      // tasks for each thread, so that none waits long for the last one

// Returns how many columns of `depth` elements fit in half of L2; the other half is for streamed
// data.
template <class T>
Index second_level_columns(Index depth) {
  return larger(1, caches().l2 / 2 / (depth * Index{sizeof(T)}));
}

// Returns true if L1 can hold a line of each of `rows` rows, `stride` bytes apart, at the same
// time.
inline bool fit_first_level(Index rows, Index stride) {
  const Caches& c = caches();
  const Index sets = larger(1, c.l1 / c.l1_ways / c.line);
  for (Index r = 0; r < rows; ++r) {
    Index same = 0;
    for (Index other = 0; other < rows; ++other) {
      same += other * stride / c.line % sets == r * stride / c.line % sets;
    }
    if (same > c.l1_ways) return false;
  }
  return true;
}

// The number of blocks, along rows and along columns, into which the tasks divide a result.
struct Blocks {
  Index rows, columns;
};

template <class T>
Blocks blocks_of(Index rows, Index columns, Index depth) {
  using B = Blocking<T>;
  const Index threads = num_threads(), tasks = threads > 1 ? kShares * threads : 1;
  const Index high = ceil_div(rows, B::MR), wide = ceil_div(columns, B::NR);  // in tiles
  const Index across = ceil_div(columns, larger(B::NR, second_level_columns<T>(depth)));
  const Index down =
      larger(ceil_div(high, kTilesPerPanel), smaller(ceil_div(tasks, across), high / kLeastTiles));
  // If there are too few rows for all threads, the columns are divided too.
  const Index more = round_up(ceil_div(tasks, down), down % threads == 0 ? 1 : threads);
  return {down, larger(across, smaller(wide, more))};
}

// Cuts n into `parts` parts of whole steps and returns where part `index` begins. The sizes of two
// parts differ by at most one step.
constexpr Index begin_of_part(Index index, Index parts, Index n, Index step) {
  return smaller(n, ceil_div(n, step) * index / parts * step);
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
