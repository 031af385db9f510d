// An epilogue that computes the moments of a tile (moments.h) from the accumulators of warpgroups,
// so that batch norm need not read the result to compute them. A partial moment belongs to the same
// 64 pixels whatever tile was chosen.
#pragma once

#include <algorithm>

#include "../moments.h"

namespace needle::cuda {
namespace {

// Sums kN columns over the 8 lanes that hold their rows. In each step a lane keeps half of its
// columns and gives its partner the sums of the others: 4 columns take 8 shuffles, not 24. The lane
// is left with one sum, in columns[0]. Returns that column's number, or -1 in a lane whose
// neighbour has the same column.
template <int kN>
__device__ int add_lanes(Deviations (&columns)[kN]) {
  const unsigned lane = threadIdx.x % kWarp;
  int left = kN, number = 0;
  bool duplicate = false;
#pragma unroll
  for (unsigned by = kWarp / 2; by >= kWarp / 8; by /= 2) {
    const bool upper = (lane & by) != 0;
    if (left > 1) {
      left /= 2;
      number += upper ? left : 0;
    } else {
      duplicate = duplicate || upper;
    }
#pragma unroll
    for (int k = 0; k < left; ++k) {
      Deviations& low = columns[k];
      const Deviations high = columns[(k + left) % kN];
      const Deviations given = upper ? low : high;
      if (upper) low = high;
      low.sum += __shfl_xor_sync(kAllLanes, given.sum, by);
      low.squares += __shfl_xor_sync(kAllLanes, given.squares, by);
    }
  }
  return duplicate ? -1 : number;
}

// Returns how many of `most` rows from `first` on are in bounds.
inline __device__ float rows_from(std::uint32_t first, std::uint32_t most, std::uint32_t rows) {
  return first < rows ? float(std::min(most, rows - first)) : 0.0F;
}

// Writes the moments of a tile. All threads of the block must call it. A slice is a warp's share of
// one partial moment. Slices go through shared memory to one thread per column, which combines them
// in the order of their rows. `result` has rows(), stored(column, value), which returns a value as
// it will be in memory, and put_moment(part, column's number, moment).
template <class Accumulator, class Result>
__device__ void write_moments(const Accumulator& accumulator, const Result& result,
                              std::uint32_t row, std::uint32_t column) {
  constexpr int kSlices = Accumulator::kSlices, kTileN = Accumulator::kTileN;
  constexpr int kRows = Accumulator::kSliceRows / 8;
  constexpr int kJoined = int(kMomentRows) / Accumulator::kSliceRows;
  constexpr int kAtOnce = 4;  // 8 would save one of 12 shuffles, but take more registers
  static_assert(kJoined * Accumulator::kSliceRows == kMomentRows && kSlices % kJoined == 0);
  static_assert(Accumulator::kColumns % kAtOnce == 0);
  NEEDLE_SHARED(slices, Moment[kSlices][kTileN]);
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint32_t rows = result.rows();
#pragma unroll
  for (int n = 0; n < Accumulator::kRows / kRows; ++n) {
    const std::uint32_t mine = row + Accumulator::row_of(n * kRows), first = mine - lane / 4;
    const float count = rows_from(first, Accumulator::kSliceRows, rows);
#pragma unroll
    for (int j = 0; j < Accumulator::kColumns; j += kAtOnce) {
      typename Result::Column columns[kAtOnce];
      Deviations sums[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        columns[k] = result.column(column + Accumulator::column_of(j + k));
        const float value = result.stored(columns[k], accumulator.sum(n * kRows, j + k));
        sums[k] = {__shfl_sync(kAllLanes, value, lane % 4), 0, 0};
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (mine + i * 8 >= rows) continue;
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          sums[k].add(result.stored(columns[k], accumulator.sum(n * kRows + i, j + k)));
        }
      }
      const int number = add_lanes(sums);
      if (number >= 0 && count > 0) {
        slices[threadIdx.x / kWarp][Accumulator::column_of(j + number)] = sums[0].moment(count);
      }
    }
    __syncthreads();
    for (int t = int(threadIdx.x); t < kSlices / kJoined * kTileN; t += int(blockDim.x)) {
      const int channel = t % kTileN, part = t / kTileN;
      const std::uint32_t begin = row + Accumulator::moment_row(part, n);
      Moment total = {};
      float counted = 0;
#pragma unroll
      for (int s = 0; s < kJoined; ++s) {
        const float more =
            rows_from(begin + s * Accumulator::kSliceRows, Accumulator::kSliceRows, rows);
        if (more == 0) continue;
        const Moment next = slices[part * kJoined + s][channel];
        const float distance = next.mean - total.mean, share = more / (counted + more);
        total.mean += distance * share;
        total.squares += next.squares + distance * distance * counted * share;
        counted += more;
      }
      if (counted > 0) result.put_moment(begin / kMomentRows, column + channel, total);
    }
    if (n + 1 < Accumulator::kRows / kRows) __syncthreads();
  }
}

}  // namespace
}  // namespace needle::cuda
