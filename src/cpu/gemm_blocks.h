// The blocks of large products, from the sizes of the caches by the model of Low, Igual, Smith and
// Quintana-Orti, "Analytical Modeling Is Enough for High-Performance BLIS" (2016), with the
// operands' roles exchanged: a vector lies along the columns here. The rows of one tile of A stay
// in L1 while all columns of a block of B pass; the block of B stays in L2 while all rows of a task
// pass.
#pragma once

#include "caches.h"
#include "core/thread_pool.h"
#include "gemm_tile.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// Rows and columns of the blocks of a result: a task computes one.
struct Blocks {
  Index rows, columns;
};

// A tile takes MR * k cycles of two fused multiply-adds, and its panel of B takes NR * k / 2 cycles
// from L3 at 8 bytes a cycle, which is slow. Over 24 tiles these are at most 5 %.
constexpr Index kTilesPerPanel = 24;
constexpr Index kLeastTiles = 8;  // rows of tiles that are worth a task for one more thread
constexpr Index kShares = 2;      // tasks for each thread, so that none waits long for the last one

// Returns the number of vectors of `depth` elements that half of L2 holds; the other half is for
// what passes.
template <class T>
Index second_level_columns(Index depth) {
  return larger(1, caches().l2 / 2 / (depth * Index{sizeof(T)}));
}

// Cuts n into equal parts of at most `most`, rounded up to a multiple of `step`.
constexpr Index even_part(Index n, Index most, Index step) {
  return round_up(ceil_div(n, ceil_div(n, most)), step);
}

// Returns true if `rows` rows, `stride` bytes apart, can have a line each in L1 at the same time.
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

template <class T>
Blocks blocks_of(Index rows, Index columns, Index depth) {
  using B = Blocking<T>;
  const Index threads = num_threads(), tasks = threads > 1 ? kShares * threads : 1;
  const Index wide = even_part(columns, larger(B::NR, second_level_columns<T>(depth)), B::NR);
  const Index least = smaller(tasks / ceil_div(columns, wide), rows / (kLeastTiles * B::MR));
  const Index row_tasks = larger(ceil_div(rows, kTilesPerPanel * B::MR), least);
  const Index high = round_up(ceil_div(rows, row_tasks), B::MR);
  // Where the rows do not suffice, the columns are cut for the threads.
  return {high, smaller(wide, round_up(ceil_div(columns, ceil_div(tasks, row_tasks)), B::NR))};
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
