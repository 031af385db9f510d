// The product of two matrices on a GPU, wherever their elements come from (matmul, convolutions). A
// block computes one tile of the result, in steps of kTileK along K. In each step, all threads load
// a stage of each operand (kTileM x kTileK and kTileK x kTileN) into shared memory. Then each
// thread adds the product to its accumulators in registers. The stages form a pipeline: the next
// ones are loaded (asynchronously where cp.async exists: instructions.h) while the current one is
// multiplied, and one barrier per step is enough. The accumulators here compute in full precision;
// those of tensor_tile.h and swizzled_tile.h use tensor cores. A value in shared memory is used
// kTileN (or kTileM) times, one in a register kRegN (or kRegM) times. This reuse makes arithmetic,
// not memory, the limit. Registers are loaded 16 bytes at a time; scalar loads would be a quarter
// as many as the multiplications.
#pragma once

#include <algorithm>
#include <cstdint>

#include "precision.h"
#include "sm90/warpgroup_tile.h"
#include "tensor_tile.h"

namespace needle::cuda {
namespace {

// One pipeline stage of an operand in shared memory. Its padding keeps the elements that a warp
// reads together in different banks. K-major vectors are stored as [mn][k] instead of [k][mn].
template <class T, Load kLoad, int kTileMn, class Tile>
struct StageOf {
  using Type = std::conditional_t<kLoad == Load::kKMajor, T[kTileMn][Tile::kTileK + 4],
                                  T[Tile::kTileK][kTileMn + Tile::kPadding / sizeof(T)]>;
};
template <class T, Load kLoad, int kTileMn, class Tile>
  requires Tile::kSwizzled
struct StageOf<T, kLoad, kTileMn, Tile> {
  using Type = SwizzledStage<kTileMn>;
};
template <class T, Load kLoad, int kTileMn, class Tile>
using Stage = typename StageOf<T, kLoad, kTileMn, Tile>::Type;

// The interface of an operand. "mn" is the row index of A or the column index of B:
//   MnCoord mn_coord(mn), KCoord k_coord(k)   what all elements with this index share
//   bool in_bounds(mn_coord, k_coord)         if false, the element counts as 0
//   const T* base(mn_coord, k_coord)          the element's address is base + offset; defined for
//   offset(mn_coord, k_coord)                 mn out of bounds too; vector loads need 32 bits
//   bool k_major()                            true if memory is contiguous along K
// Scalar loads follow the order of memory (eight at a time along K), so that a warp reads whole
// sectors.
template <class T, class Operand, Load kLoad, int kTileMn, class Tile>
struct Loader {
  struct alignas(4 * sizeof(T)) Vector4 {
    T values[4];
  };
  static constexpr bool kVectorized = kLoad != Load::kScalar;
  using Vector = std::conditional_t<kVectorized, Vector4, T>;
  static constexpr int kTileK = Tile::kTileK, kThreads = Tile::kThreads;
  static constexpr int kWidth = kVectorized ? 4 : 1, kRun = 8;
  static constexpr int kVectors = kTileMn * kTileK / kWidth;
  static constexpr int kLoads = (kVectors + kThreads - 1) / kThreads;
  static_assert((kVectorized || kVectors % kThreads == 0) && kTileK % kRun == 0 &&
                kTileMn % kWidth == 0);
  static constexpr bool kAsync = true;
  typename Operand::MnCoord mn_coords[kLoads];
  Copy<Vector> copies[kLoads];

  static __device__ int index(int i) { return int(threadIdx.x) + i * kThreads; }
  static __device__ bool in_tile(int i) { return kVectors % kThreads == 0 || index(i) < kVectors; }
  static __device__ int mn_of(bool k_major, int i) {
    if constexpr (kLoad == Load::kMnMajor) return index(i) % (kTileMn / kWidth) * kWidth;
    if constexpr (kLoad == Load::kKMajor) return index(i) / (kTileK / kWidth);
    return k_major ? index(i) / kRun % kTileMn : index(i) % kTileMn;
  }
  static __device__ int k_of(bool k_major, int i) {
    if constexpr (kLoad == Load::kMnMajor) return index(i) / (kTileMn / kWidth);
    if constexpr (kLoad == Load::kKMajor) return index(i) % (kTileK / kWidth) * kWidth;
    return k_major ? index(i) % kRun + index(i) / (kRun * kTileMn) * kRun : index(i) / kTileMn;
  }
  static __device__ Vector* target(Stage<T, kLoad, kTileMn, Tile>& stage, bool k_major, int i) {
    const int mn = mn_of(k_major, i), k = k_of(k_major, i);
    if constexpr (kLoad == Load::kKMajor) return reinterpret_cast<Vector*>(&stage[mn][k]);
    if constexpr (kLoad != Load::kKMajor) return reinterpret_cast<Vector*>(&stage[k][mn]);
  }
  __device__ void begin(const Operand& operand, std::uint32_t first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      mn_coords[i] = operand.mn_coord(first + mn_of(operand.k_major(), i));
    }
  }
  __device__ void start(const Operand& operand, std::uint32_t first, std::uint32_t end,
                        Stage<T, kLoad, kTileMn, Tile>& stage) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (!in_tile(i)) continue;
      const std::uint32_t k = first + k_of(operand.k_major(), i);
      const auto address = [&](const typename Operand::KCoord& k_coord) {
        return reinterpret_cast<const Vector*>(operand.base(mn_coords[i], k_coord) +
                                               operand.offset(mn_coords[i], k_coord));
      };
      if constexpr (kVectorized) {
        const typename Operand::KCoord k_coord = operand.k_coord(k);
        const bool valid = (k < end) & operand.in_bounds(mn_coords[i], k_coord);
        copies[i].start(target(stage, operand.k_major(), i), address(k_coord), valid);
      } else {
        const Vector* from = nullptr;
        if (k < end) {
          const typename Operand::KCoord k_coord = operand.k_coord(k);
          if (operand.in_bounds(mn_coords[i], k_coord)) from = address(k_coord);
        }
        copies[i].start(target(stage, operand.k_major(), i), from, from != nullptr);
      }
    }
  }
  __device__ void finish(const Operand& operand, Stage<T, kLoad, kTileMn, Tile>& stage) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (in_tile(i)) copies[i].finish(target(stage, operand.k_major(), i));
    }
  }
};

template <class T, class Operand, Load kLoad, int kTileMn, class Tile>
  requires Tile::kSwizzled
struct Loader<T, Operand, kLoad, kTileMn, Tile>
    : std::conditional_t<sizeof(T) == 2, StoredLoader<T, Operand, kLoad, kTileMn, Tile>,
                         RoundingLoader<Operand, kLoad, kTileMn, Tile>> {};

// Blocks per multiprocessor, for __launch_bounds__. Vector loads of bf16 need no registers while in
// flight, so two blocks of the largest tile fit; scalar bf16 loads take more registers than others,
// as no cp.async copies two bytes.
template <class T, class Tile, Load kA>
inline constexpr int kMinBlocksOf = sizeof(T) != 2        ? Tile::kMinBlocks
                                    : kA == Load::kScalar ? 1
                                                          : std::max(2, Tile::kMinBlocks);

// Pipeline stages. Three stages of bf16 fill the 48 KB of static shared memory; loads that wait in
// registers count as a stage.
template <class T, class Tile>
inline constexpr int kStagesOf = Tile::kSwizzled && sizeof(T) == 2 ? 3 : 2;

// Elements of a 16-byte vector.
template <class T>
inline constexpr std::int64_t kVectorElements = 16 / sizeof(T);

// The fragment of a stage that a thread multiplies: kReg of kTile elements, in vectors of at most
// 16 bytes. The vectors of all threads alternate, which avoids bank conflicts.
template <class T, int kTile, int kReg>
struct ThreadFragment {
  static constexpr int kWidth = std::min(kReg, 16 / int(sizeof(T)));
  struct alignas(sizeof(T) * kWidth) Vector {
    T values[kWidth];
  };
  static __device__ int position(int thread, int i) {
    return i / kWidth * (kTile / kReg * kWidth) + thread * kWidth + i % kWidth;
  }
  static __device__ void load(const T* row, int thread, T (&fragment)[kReg]) {
#pragma unroll
    for (int i = 0; i < kReg; i += kWidth) {
      const Vector vector = *reinterpret_cast<const Vector*>(&row[position(thread, i)]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) fragment[i + j] = vector.values[j];
    }
  }
};

// The interface of an accumulator, the part of a tile that a thread has in registers:
//   multiply_add(a, b)    adds the product of two stages
//   fence_and_wait()      before a barrier: stores to shared memory become visible to asynchronous
//                         products, and those in flight end
//   kRows, kColumns, row_of(i), column_of(j), sum(i, j)   its elements and their place in the tile
template <class T, class Tile, Load kA, Load kB>
struct RegisterAccumulator {
  static_assert(kA != Load::kKMajor && kB != Load::kKMajor);  // fragments are loaded as vectors
  using RowFragment = ThreadFragment<T, Tile::kTileM, Tile::kRegM>;
  using ColumnFragment = ThreadFragment<T, Tile::kTileN, Tile::kRegN>;
  T sums[Tile::kRegM][Tile::kRegN] = {};

  static __device__ int row() { return int(threadIdx.x) / Tile::kThreadsN; }
  static __device__ int column() { return int(threadIdx.x) % Tile::kThreadsN; }

  __device__ void multiply_add(const Stage<T, kA, Tile::kTileM, Tile>& a,
                               const Stage<T, kB, Tile::kTileN, Tile>& b) {
#pragma unroll
    for (int k = 0; k < Tile::kTileK; ++k) {
      T x[Tile::kRegM], y[Tile::kRegN];
      RowFragment::load(a[k], row(), x);
      ColumnFragment::load(b[k], column(), y);
#pragma unroll
      for (int i = 0; i < Tile::kRegM; ++i) {
#pragma unroll
        for (int j = 0; j < Tile::kRegN; ++j) sums[i][j] += x[i] * y[j];
      }
    }
  }
  static constexpr int kRows = Tile::kRegM, kColumns = Tile::kRegN;
  static __device__ int row_of(int i) { return RowFragment::position(row(), i); }
  static __device__ int column_of(int j) { return ColumnFragment::position(column(), j); }
  __device__ T sum(int i, int j) const { return sums[i][j]; }
  __device__ void fence_and_wait() {}
};

template <int kM, int kN, int kK, int kRegM_, int kRegN_>
struct RegisterTile {
  static constexpr int kTileM = kM, kTileN = kN, kTileK = kK, kRegM = kRegM_, kRegN = kRegN_;
  static constexpr int kThreadsN = kN / kRegN, kThreads = (kM / kRegM) * kThreadsN;
  static constexpr int kPadding = 16;  // bytes
  // With two blocks of 256 threads per multiprocessor, a thread has 128 registers, and the largest
  // tile would spill.
  static constexpr int kMinBlocks = kThreads == 256 && kM * kN <= 128 * 64 ? 2 : 1;
  static constexpr bool kCompiled = true, kTensorCores = false, kSwizzled = false;
  using VectorTile = RegisterTile;
  template <class T, Load kA = Load::kScalar, Load kB = Load::kScalar>
  using Accumulator = RegisterAccumulator<T, RegisterTile, kA, kB>;
};

template <Precision kPrecision, class FullPrecision, class TensorCores>
using TileFor = std::conditional_t<kPrecision == Precision::kFloat32, FullPrecision, TensorCores>;
// LargeTile is for results with enough tiles for every multiprocessor, SmallTile for smaller ones.
template <Precision kPrecision>
using LargeTile = TileFor<kPrecision, RegisterTile<128, 128, 8, 8, 8>,
                          TensorTile<kPrecision, 128, 128, 16, 64, 32>>;
template <Precision kPrecision>
using SmallTile =
    TileFor<kPrecision, RegisterTile<32, 32, 16, 2, 4>, TensorTile<kPrecision, 64, 32, 16, 32, 16>>;

// Calls f with the tile for vector loads, as a std::type_identity. A small tile gains nothing from
// warpgroups: most of its instructions load operands.
template <class Tile, class F>
decltype(auto) with_vector_tile(int device, F&& f) {
  using Vectorized = typename Tile::VectorTile;
  if constexpr (Vectorized::kSwizzled && Vectorized::kTileM >= 128) {
    if (uses_sm90(device)) return f(std::type_identity<OnWarpgroups<Vectorized>>{});
  }
  return f(std::type_identity<Vectorized>{});
}

// The interface of a result, whose elements out of bounds are not stored:
//   Row row(n), Column column(n)      what all elements of a row (column) share, with bool valid
//   void put(row, column, value)
// ResultRow and ResultColumn suffice for most results.
template <class T>
struct ResultRow {
  T* data;
  bool valid;
};
struct ResultColumn {
  std::int64_t offset;
  bool valid;
};

template <class Accumulator, class Result>
__device__ void store(const Accumulator& accumulator, const Result& result, std::uint32_t row,
                      std::uint32_t column) {
  typename Result::Column columns[Accumulator::kColumns];
#pragma unroll
  for (int j = 0; j < Accumulator::kColumns; ++j) {
    columns[j] = result.column(column + accumulator.column_of(j));
  }
#pragma unroll
  for (int i = 0; i < Accumulator::kRows; ++i) {
    const typename Result::Row target = result.row(row + accumulator.row_of(i));
    if (!target.valid) continue;
#pragma unroll
    for (int j = 0; j < Accumulator::kColumns; ++j) {
      if (columns[j].valid) result.put(target, columns[j], accumulator.sum(i, j));
    }
  }
}

// Computes the tile that begins at `row` and `column`, summed over k in [begin, end).
template <class T, class Tile, Load kA = Load::kScalar, Load kB = Load::kScalar, class A, class B,
          class Result>
__device__ void tile_product(const A& a, const B& b, std::uint32_t row, std::uint32_t column,
                             std::uint32_t begin, std::uint32_t end, const Result& result) {
  if constexpr (Tile::kCompiled) {
    using StageA = Stage<T, kA, Tile::kTileM, Tile>;
    using StageB = Stage<T, kB, Tile::kTileN, Tile>;
    constexpr int kStages = kStagesOf<T, Tile>, kAhead = kStages - 1;
    NEEDLE_SHARED(stages_a, StageA[kStages]);
    NEEDLE_SHARED(stages_b, StageB[kStages]);
    using LoaderA = Loader<T, A, kA, Tile::kTileM, Tile>;
    LoaderA loader_a;
    Loader<T, B, kB, Tile::kTileN, Tile> loader_b;
    typename Tile::template Accumulator<T, kA, kB> accumulator;
    // Unrolling makes the addresses of stages constants; scalar loads would need too many
    // registers.
    [[maybe_unused]] constexpr int kUnrolled = kA == Load::kScalar ? 1 : kStages;
    // Commits the copies of a step; waits until the oldest of kAhead steps has arrived.
    [[maybe_unused]] const auto commit = [] {
      if constexpr (LoaderA::kAsync) cp_async_commit();
    };
    [[maybe_unused]] const auto wait = [] {
      if constexpr (LoaderA::kAsync) cp_async_wait<kAhead - 1>();
    };
    /// BEGIN SOLUTION [cuda-gemm-tile]
    const auto start = [&](std::uint32_t k, int stage) {
      if (k < end) {
        loader_a.start(a, k, end, stages_a[stage]);
        loader_b.start(b, k, end, stages_b[stage]);
      }
      commit();
    };
    loader_a.begin(a, row);
    loader_b.begin(b, column);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) start(begin + i * Tile::kTileK, i);
    for (std::uint32_t first = begin; first < end; first += kStages * Tile::kTileK) {
#pragma unroll(kUnrolled)
      for (int stage = 0; stage < kStages; ++stage) {
        const std::uint32_t k = first + stage * Tile::kTileK;
        if (k >= end) break;
        wait();
        loader_a.finish(a, stages_a[stage]);
        loader_b.finish(b, stages_b[stage]);
        accumulator.fence_and_wait();
        __syncthreads();
        start(k + kAhead * Tile::kTileK, (stage + kAhead) % kStages);
        accumulator.multiply_add(stages_a[stage], stages_b[stage]);
      }
    }
    /// END SOLUTION
    accumulator.fence_and_wait();
    store(accumulator, result, row, column);
  }
}

// Split-K: where a result has few tiles and K is long, K is cut into slices whose partial products
// are added afterwards. Their number depends on the sizes alone.
inline std::int64_t split_k_slices(std::int64_t m, std::int64_t n, std::int64_t k,
                                   std::int64_t batch) {
  constexpr std::int64_t kEnoughTiles = 128, kMinK = 512, kMaxSlices = 64;
  const std::int64_t tiles = ceil_div<std::int64_t>(m, 64) * ceil_div<std::int64_t>(n, 64) * batch;
  return std::max<std::int64_t>(
      1, std::min({kEnoughTiles / std::max<std::int64_t>(1, tiles), k / kMinK, kMaxSlices}));
}

// The length of a slice along K, a multiple of every tile's kTileK.
inline std::uint32_t k_per_slice(std::uint32_t k, std::uint32_t slices) {
  constexpr std::uint32_t kMultiple = 32;
  return slices == 1 ? k : ceil_div(ceil_div(k, slices), kMultiple) * kMultiple;
}

}  // namespace
}  // namespace needle::cuda
