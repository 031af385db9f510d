// The product of two matrices on a GPU, wherever their elements come from (matmul, convolutions).
// A block computes one tile of the result. It walks along k in steps: all threads bring a piece of
// a (kTileM x kStep) and of b (kStep x kTileN) into shared memory, then each multiplies its
// kRegM x kRegN part of the tile in registers. There are two of each piece: the next ones are on
// their way from memory while the present ones are multiplied, and one barrier a step is enough.
// A value loaded into shared memory is used kTileN (kTileM) times, one loaded into a register
// kRegN (kRegM) times: that is what keeps the multipliers, not memory, busy. Registers are filled
// 16 bytes at a time, or loads would be as many as a quarter of the multiplications.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device.h"

namespace needle::cuda {
namespace {

template <int kM, int kN, int kK, int kRegM_, int kRegN_>
struct Tile {
  static constexpr int kTileM = kM, kTileN = kN, kStep = kK, kRegM = kRegM_, kRegN = kRegN_;
  static constexpr int kAcross = kN / kRegN, kThreads = (kM / kRegM) * kAcross;
};
// For results with tiles enough for every processor, and for smaller ones.
using LargeTile = Tile<128, 128, 8, 8, 8>;
using SmallTile = Tile<32, 32, 16, 2, 4>;

// What a kernel needs to know of an operand (a by its rows, b by its columns: "lines"):
//   Line line(n), Depth depth(k)     what is the same along a line, and across lines
//   T at(line, depth)                 the element, 0 outside the matrix
//   bool deep()                       whether memory runs along k
// Threads take elements in the order of memory, so that a warp reads whole cache lines.
template <class T, class Operand, int kLines, int kStep, int kThreads>
struct Piece {
  static constexpr int kLoads = kLines * kStep / kThreads;
  static_assert(kLines * kStep % kThreads == 0);
  typename Operand::Line lines[kLoads];
  T values[kLoads];

  static __device__ int line_of(bool deep, int i) {
    const int e = int(threadIdx.x) + i * kThreads;
    return deep ? e / kStep : e % kLines;
  }
  static __device__ int depth_of(bool deep, int i) {
    const int e = int(threadIdx.x) + i * kThreads;
    return deep ? e % kStep : e / kLines;
  }
  __device__ void start(const Operand& operand, std::uint32_t first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) lines[i] = operand.line(first + line_of(operand.deep(), i));
  }
  __device__ void load(const Operand& operand, std::uint32_t k, std::uint32_t end) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const std::uint32_t depth = k + depth_of(operand.deep(), i);
      values[i] = depth < end ? operand.at(lines[i], operand.depth(depth)) : T(0);
    }
  }
  template <int kWidth>
  __device__ void put(const Operand& operand, T (&tile)[kStep][kWidth]) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      tile[depth_of(operand.deep(), i)][line_of(operand.deep(), i)] = values[i];
    }
  }
};

// A thread's kReg lines of kTile lie in groups of kVector neighbours, 16 bytes if there are as
// many; the groups of all threads side by side.
template <class T, int kTile, int kReg>
struct Lines {
  static constexpr int kVector = std::min(kReg, 16 / int(sizeof(T)));
  static constexpr int kWidth = kTile + 16 / int(sizeof(T));  // of a row in shared memory: the rest
                                                              // puts columns into different banks
  struct alignas(sizeof(T) * kVector) Group {
    T of[kVector];
  };
  static __device__ int place(int thread, int i) {
    return i / kVector * (kTile / kReg * kVector) + thread * kVector + i % kVector;
  }
  static __device__ void load(const T (&row)[kWidth], int thread, T (&values)[kReg]) {
#pragma unroll
    for (int i = 0; i < kReg; i += kVector) {
      const Group group = *reinterpret_cast<const Group*>(&row[place(thread, i)]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[i + j] = group.of[j];
    }
  }
};
template <class T, class Tile>
using Rows = Lines<T, Tile::kTileM, Tile::kRegM>;
template <class T, class Tile>
using Columns = Lines<T, Tile::kTileN, Tile::kRegN>;

// Adds one step's products to the thread's sums.
template <class T, class Tile>
__device__ void multiply_step(const T (&a)[Tile::kStep][Rows<T, Tile>::kWidth],
                              const T (&b)[Tile::kStep][Columns<T, Tile>::kWidth],
                              T (&sums)[Tile::kRegM][Tile::kRegN]) {
  const int row = int(threadIdx.x) / Tile::kAcross, column = int(threadIdx.x) % Tile::kAcross;
#pragma unroll
  for (int k = 0; k < Tile::kStep; ++k) {
    T x[Tile::kRegM], y[Tile::kRegN];
    Rows<T, Tile>::load(a[k], row, x);
    Columns<T, Tile>::load(b[k], column, y);
#pragma unroll
    for (int i = 0; i < Tile::kRegM; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kRegN; ++j) sums[i][j] += x[i] * y[j];
    }
  }
}

// store(row, column, value) for the tile's elements, those outside the result too; k in [begin,
// end).
template <class T, class Tile, class A, class B, class Store>
__device__ void tile_product(const A& a, const B& b, std::uint32_t row, std::uint32_t column,
                             std::uint32_t begin, std::uint32_t end, Store&& store) {
  NEEDLE_SHARED(tiles_a, T[2][Tile::kStep][Rows<T, Tile>::kWidth]);
  NEEDLE_SHARED(tiles_b, T[2][Tile::kStep][Columns<T, Tile>::kWidth]);
  Piece<T, A, Tile::kTileM, Tile::kStep, Tile::kThreads> piece_a;
  Piece<T, B, Tile::kTileN, Tile::kStep, Tile::kThreads> piece_b;
  T sums[Tile::kRegM][Tile::kRegN] = {};
  /// BEGIN SOLUTION [cuda-gemm-tile]
  piece_a.start(a, row);
  piece_b.start(b, column);
  piece_a.load(a, begin, end);
  piece_b.load(b, begin, end);
  piece_a.put(a, tiles_a[0]);
  piece_b.put(b, tiles_b[0]);
  __syncthreads();
  int present = 0;
  for (std::uint32_t k = begin; k < end; k += Tile::kStep) {
    const bool more = k + Tile::kStep < end;
    if (more) {
      piece_a.load(a, k + Tile::kStep, end);
      piece_b.load(b, k + Tile::kStep, end);
    }
    multiply_step<T, Tile>(tiles_a[present], tiles_b[present], sums);
    present ^= 1;
    if (more) {
      piece_a.put(a, tiles_a[present]);
      piece_b.put(b, tiles_b[present]);
    }
    __syncthreads();
  }
  /// END SOLUTION
  const int first_row = int(threadIdx.x) / Tile::kAcross,
            first_column = int(threadIdx.x) % Tile::kAcross;
#pragma unroll
  for (int i = 0; i < Tile::kRegM; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kRegN; ++j) {
      store(row + Rows<T, Tile>::place(first_row, i),
            column + Columns<T, Tile>::place(first_column, j), sums[i][j]);
    }
  }
}

// Where a result has few tiles and k is long, k is cut into parts whose products are added up
// afterwards. The number of parts depends on sizes alone.
inline std::int64_t parts_of_k(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  constexpr std::int64_t kEnoughTiles = 128, kLeast = 512, kMost = 64;
  const std::int64_t tiles = ceil_div<std::int64_t>(m, 64) * ceil_div<std::int64_t>(n, 64) * batch;
  return std::max<std::int64_t>(
      1, std::min({kEnoughTiles / std::max<std::int64_t>(1, tiles), k / kLeast, kMost}));
}

}  // namespace
}  // namespace needle::cuda
