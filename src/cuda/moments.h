// Partial moments of a convolution's result, for batch norm: of each channel the mean of 64
// consecutive pixels (rows of the product) and the sum of their squared deviations from it, of the
// numbers as they are stored. A block has them in registers when it stores its tile, so batch norm
// need not read the result for them. They lie as (ceil(pixels / 64), 2, C) whatever tile was chosen
// and combine by the formula of Chan, Golub & LeVeque (1979).
#pragma once

#include <algorithm>
#include <cstdint>

#include "device.h"

namespace needle::cuda {
namespace {

constexpr std::uint32_t kMomentRows = 64;

struct Moment {
  float mean, squares;  // squares of the deviations from the mean
};

// Sums over some rows of a column: of the deviations from `origin`, one of the values, and of their
// squares. That value is at most sqrt(rows) standard deviations from the mean, so a large mean
// costs no digits.
struct Deviations {
  float origin, sum, squares;

  __device__ void add(float value) {
    const float deviation = value - origin;
    sum += deviation;
    squares += deviation * deviation;
  }
  __device__ Moment moment(float rows) const {
    const float apart = sum / rows, spread = squares - apart * sum;
    return {origin + apart, spread < 0 ? 0 : spread};  // NaN stays
  }
};

// Adds up kN columns over the 8 lanes that have rows of them. In each step a lane keeps half of its
// columns and gives its partner the sums of the others: 4 columns take 8 shuffles instead of 24.
// The lane is left with the first of `columns`; the result is its number, or -1 in a lane whose
// neighbour has the same.
template <int kN>
__device__ int add_lanes(Deviations (&columns)[kN]) {
  const unsigned lane = threadIdx.x % kWarp;
  int left = kN, number = 0;
  bool twice = false;
#pragma unroll
  for (unsigned by = kWarp / 2; by >= kWarp / 8; by /= 2) {
    const bool upper = (lane & by) != 0;
    if (left > 1) {
      left /= 2;
      number += upper ? left : 0;
    } else {
      twice = twice || upper;
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
  return twice ? -1 : number;
}

// Rows from `first` on, of at most `most` there.
inline __device__ float rows_from(std::uint32_t first, std::uint32_t most, std::uint32_t rows) {
  return first < rows ? float(std::min(most, rows - first)) : 0.0F;
}

// The moments of a tile by warpgroups, by all threads of its block. A slice is what a warp has of
// one partial moment: its moments go by way of shared memory to one thread for each column, which
// combines them in the order of their rows. The result has rows(), stored(column, value), a value
// as it will be in memory, and put_moment(part, column's number, moment).
template <class Part, class Result>
__device__ void write_moments(const Part& part, const Result& result, std::uint32_t row,
                              std::uint32_t column) {
  constexpr int kSlices = Part::kSlices, kTileN = Part::kTileN, kRows = Part::kSliceRows / 8;
  constexpr int kJoined = int(kMomentRows) / Part::kSliceRows;
  constexpr int kAtOnce = 4;  // 8 would save one of 12 shuffles, but take more registers
  static_assert(kJoined * Part::kSliceRows == kMomentRows && kSlices % kJoined == 0);
  static_assert(Part::kColumns % kAtOnce == 0);
  NEEDLE_SHARED(slices, Moment[kSlices][kTileN]);
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint32_t rows = result.rows();
#pragma unroll
  for (int n = 0; n < Part::kRows / kRows; ++n) {
    const std::uint32_t mine = row + Part::row_of(n * kRows), first = mine - lane / 4;
    const float count = rows_from(first, Part::kSliceRows, rows);
#pragma unroll
    for (int j = 0; j < Part::kColumns; j += kAtOnce) {
      typename Result::Column columns[kAtOnce];
      Deviations sums[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        columns[k] = result.column(column + Part::column_of(j + k));
        const float value = result.stored(columns[k], part.sum(n * kRows, j + k));
        sums[k] = {__shfl_sync(kAllLanes, value, lane % 4), 0, 0};
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (mine + i * 8 >= rows) continue;
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          sums[k].add(result.stored(columns[k], part.sum(n * kRows + i, j + k)));
        }
      }
      const int number = add_lanes(sums);
      if (number >= 0 && count > 0) {
        slices[threadIdx.x / kWarp][Part::column_of(j + number)] = sums[0].moment(count);
      }
    }
    __syncthreads();
    for (int t = int(threadIdx.x); t < kSlices / kJoined * kTileN; t += int(blockDim.x)) {
      const int at = t % kTileN, whole = t / kTileN;
      const std::uint32_t begin = row + Part::moment_row(whole, n);
      Moment total = {};
      float counted = 0;
#pragma unroll
      for (int s = 0; s < kJoined; ++s) {
        const float more = rows_from(begin + s * Part::kSliceRows, Part::kSliceRows, rows);
        if (more == 0) continue;
        const Moment next = slices[whole * kJoined + s][at];
        const float apart = next.mean - total.mean, share = more / (counted + more);
        total.mean += apart * share;
        total.squares += next.squares + apart * apart * counted * share;
        counted += more;
      }
      if (counted > 0) result.put_moment(begin / kMomentRows, column + at, total);
    }
    if (n + 1 < Part::kRows / kRows) __syncthreads();
  }
}

}  // namespace
}  // namespace needle::cuda
