// A block's tile on tensor cores in bf16 and fp16, with vector loads and swizzled shared memory.
// float32 operands are rounded once, on their way to shared memory: a thread loads four numbers
// into registers while the current stage is multiplied, and then stores them as 8 bytes. ldmatrix
// loads 16 x 16 elements from there into a warp's registers with one instruction.
#pragma once

#include "instructions.h"

namespace needle::cuda {
namespace {

// How threads load an operand: element by element, or in 16-byte vectors that are contiguous along
// M (of A) or N (of B), or along K. Vectors must be aligned, and entirely in or out of bounds.
enum class Load { kScalar, kMnMajor, kKMajor };

// A pipeline stage in shared memory, in rows of 32 elements. K-major: one row for each m (n).
// MN-major: one row for each k, of 32 consecutive m (n), then the rows of the next 32. A row is as
// long as 16 of the 32 banks, and ldmatrix reads 16 bytes from each of 8 rows at once. The swizzle
// XORs the index of the 16-byte chunk with bits of the row, so that these 8 chunks lie in different
// banks.
template <int kTileMn>
struct alignas(512) SwizzledStage {
  static constexpr std::uint32_t kRow = 32, kChunk = 8;
  std::uint16_t data[kTileMn * kRow];

  // The swizzle repeats every eight rows.
  static __device__ std::uint32_t position(std::uint32_t row, std::uint32_t column) {
    return row * kRow + (column / kChunk ^ row / 2 % 4) * kChunk + column % kChunk;
  }
};

template <class Operand, Load kLoad, int kTileMn, class Tile>
struct RoundingLoader {
  using Stage = SwizzledStage<kTileMn>;
  // The number of threads per row of the stage. K-major: one for each vector of the row. MN-major:
  // so many that all vectors of a thread have the same k.
  static constexpr std::uint32_t kThreadsInRow =
      kLoad == Load::kKMajor ? Stage::kRow / 4 : Tile::kThreads / Stage::kRow;
  static constexpr std::uint32_t kRows = Tile::kThreads / kThreadsInRow;  // loaded together
  static constexpr int kLoads = kTileMn * int(Stage::kRow) / 4 / Tile::kThreads;
  static_assert(Tile::kTileK == Stage::kRow && kTileMn % Stage::kRow == 0);
  static_assert(kLoad == Load::kKMajor ? kRows % 8 == 0 && kTileMn % kRows == 0
                                       : kThreadsInRow == 4 || kThreadsInRow == 8);
  static constexpr bool kAsync = false;
  typename Operand::MnCoord mn_coords[kLoads];
  Float4 vectors[kLoads];

  static __device__ std::uint32_t column() { return threadIdx.x % kThreadsInRow * 4; }
  // Four threads store half of a row. Exchanging bits 1 and 2 of the row number spreads the 16
  // threads that store together over rows whose halves lie in different banks.
  static __device__ std::uint32_t row() {
    const std::uint32_t n = threadIdx.x / kThreadsInRow;
    return kThreadsInRow == 4 ? (n & ~6u) | (n & 2) << 1 | (n & 4) >> 1 : n;
  }
  static __device__ std::uint32_t mn_of(int i) {
    return kLoad == Load::kKMajor ? row() + i * kRows : column() + i * kThreadsInRow * 4;
  }
  __device__ void begin(const Operand& operand, std::uint32_t first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) mn_coords[i] = operand.mn_coord(first + mn_of(i));
  }
  __device__ void start(const Operand& operand, std::uint32_t first, std::uint32_t end, Stage&) {
    const std::uint32_t k = first + (kLoad == Load::kKMajor ? column() : row());
    const typename Operand::KCoord k_coord = operand.k_coord(k);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const auto offset = static_cast<std::int32_t>(operand.offset(mn_coords[i], k_coord));
      vectors[i] = load_float4(operand.base(mn_coords[i], k_coord), offset,
                               (k < end) & operand.in_bounds(mn_coords[i], k_coord));
    }
  }
  __device__ void finish(const Operand&, Stage& stage) const {
    const std::uint32_t position = Stage::position(row(), column());
    std::uint16_t* const halves[2] = {&stage.data[position],
                                      &stage.data[position ^ Stage::kRow / 2]};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float (&v)[4] = vectors[i].values;
      std::uint16_t* const to = kThreadsInRow == 4
                                    ? halves[i % 2] + i / 2 * Stage::kRow * Stage::kRow
                                    : halves[0] + i * kRows * Stage::kRow;
      store_shared_v2(to, pack<Tile::kPrecision>(v[0], v[1]), pack<Tile::kPrecision>(v[2], v[3]));
    }
  }
};

// Arrays stored in bf16 need no rounding: cp.async copies 16-byte chunks, bypassing the registers.
template <class T, class Operand, Load kLoad, int kTileMn, class Tile>
struct StoredLoader {
  using Stage = SwizzledStage<kTileMn>;
  struct alignas(16) Chunk {
    T values[Stage::kChunk];
  };
  static constexpr std::uint32_t kThreadsInRow = Stage::kRow / Stage::kChunk;
  static constexpr std::uint32_t kRows = Tile::kThreads / kThreadsInRow;  // loaded together
  static constexpr int kLoads = kTileMn / int(kRows);
  static_assert(Tile::kTileK == Stage::kRow && kTileMn % kRows == 0 && kRows % Stage::kRow == 0);
  static constexpr bool kAsync = true;
  typename Operand::MnCoord mn_coords[kLoads];
  Copy<Chunk> copies[kLoads];

  static __device__ std::uint32_t column() { return threadIdx.x % kThreadsInRow * Stage::kChunk; }
  static __device__ std::uint32_t row() { return threadIdx.x / kThreadsInRow; }
  static __device__ Chunk* target(Stage& stage, int i) {
    return reinterpret_cast<Chunk*>(
        &stage.data[Stage::position(row(), column()) + i * kRows * Stage::kRow]);
  }
  __device__ void begin(const Operand& operand, std::uint32_t first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const std::uint32_t n = row() + i * kRows;
      const std::uint32_t mn =
          kLoad == Load::kKMajor ? n : n / Stage::kRow * Stage::kRow + column();
      mn_coords[i] = operand.mn_coord(first + mn);
    }
  }
  __device__ void start(const Operand& operand, std::uint32_t first, std::uint32_t end,
                        Stage& stage) {
    const std::uint32_t k = first + (kLoad == Load::kKMajor ? column() : row() % Stage::kRow);
    const typename Operand::KCoord k_coord = operand.k_coord(k);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const T* from = operand.base(mn_coords[i], k_coord) + operand.offset(mn_coords[i], k_coord);
      copies[i].start(target(stage, i), reinterpret_cast<const Chunk*>(from),
                      (k < end) & operand.in_bounds(mn_coords[i], k_coord));
    }
  }
  __device__ void finish(const Operand&, Stage& stage) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) copies[i].finish(target(stage, i));
  }
};

// A warp's accumulators for kWarpM x kWarpN elements of the tile: kMmaM x kMmaN fragments of 16 x
// 8, laid out as mma_sync has them.
template <class Tile>
struct WarpFragments {
  static constexpr int kMmaM = Tile::kWarpM / 16, kMmaN = Tile::kWarpN / 8;
  float sums[kMmaM][kMmaN][4] = {};

  static __device__ int lane() { return int(threadIdx.x) % kWarp; }
  static __device__ int first_row() {
    return int(threadIdx.x) / kWarp / (Tile::kTileN / Tile::kWarpN) * Tile::kWarpM;
  }
  static __device__ int first_column() {
    return int(threadIdx.x) / kWarp % (Tile::kTileN / Tile::kWarpN) * Tile::kWarpN;
  }
  static constexpr int kRows = kMmaM * 2, kColumns = kMmaN * 2;
  static __device__ int row_of(int i) { return first_row() + lane() / 4 + i * 8; }
  static __device__ int column_of(int j) {
    return first_column() + lane() % 4 * 2 + j / 2 * 8 + j % 2;
  }
  __device__ float sum(int i, int j) const { return sums[i / 2][j / 2][i % 2 * 2 + j % 2]; }
  __device__ void fence_and_wait() {}
};

template <class Tile, Load kA, Load kB>
struct SwizzledAccumulator : WarpFragments<Tile> {
  using WarpFragments<Tile>::kMmaM, WarpFragments<Tile>::kMmaN;

  // Loads the 16 x 16 elements that start at first + mn along M (N) and at k along K, as four 8 x 8
  // matrices. With kMnFirst the second matrix is the next one along M (N), which is mma_sync's
  // order for a; otherwise it is the next one along K, its order for b.
  template <Load kLoad, bool kMnFirst, int kTileMn>
  static __device__ void load(const SwizzledStage<kTileMn>& stage, int first, int mn, int k,
                              std::uint32_t (&fragment)[4]) {
    using Stage = SwizzledStage<kTileMn>;
    constexpr bool kKMajor = kLoad == Load::kKMajor;
    const int lane = WarpFragments<Tile>::lane(), row = lane % 8;
    const int matrix_mn = (kMnFirst ? lane / 8 % 2 : lane / 16) * 8;
    const int matrix_k = (kMnFirst ? lane / 16 : lane / 8 % 2) * 8;
    const std::uint32_t position =
        kKMajor
            ? Stage::position(first + matrix_mn + row, matrix_k + k) + mn * Stage::kRow
            : Stage::position(first / 32 * 32 + matrix_k + row, first % 32 + matrix_mn + mn % 32) +
                  (mn / 32 * 32 + k) * Stage::kRow;
    ldmatrix<!kKMajor>(fragment, &stage.data[position]);
  }
  template <class StageA, class StageB>
  __device__ void multiply_add(const StageA& a, const StageB& b) {
    static_assert(kMmaN % 2 == 0);
#pragma unroll
    for (int k = 0; k < Tile::kTileK; k += 16) {
      std::uint32_t left[kMmaM][4], right[kMmaN / 2][4];
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) load<kA, true>(a, this->first_row(), i * 16, k, left[i]);
#pragma unroll
      for (int j = 0; j < kMmaN / 2; ++j) {
        load<kB, false>(b, this->first_column(), j * 16, k, right[j]);
      }
#pragma unroll
      for (int i = 0; i < kMmaM; ++i) {
#pragma unroll
        for (int j = 0; j < kMmaN; ++j) {
          const std::uint32_t (&pair)[4] = right[j / 2];
          mma_sync<Tile::kPrecision>(this->sums[i][j], left[i],
                                     {pair[j % 2 * 2], pair[j % 2 * 2 + 1]});
        }
      }
    }
  }
};

template <Precision kPrecision_, int kM, int kN, int kK, int kWarpM_, int kWarpN_>
struct SwizzledTile {
  static constexpr Precision kPrecision = kPrecision_;
  static constexpr int kTileM = kM, kTileN = kN, kTileK = kK, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kThreads = (kM / kWarpM) * (kN / kWarpN) * kWarp;
  // Accumulators and vectors in flight of the largest tile need more registers than two blocks
  // have.
  static constexpr int kMinBlocks = kM * kN > 128 * 64 ? 1 : kM * kN == 128 * 64 ? 2 : 4;
  static constexpr bool kCompiled = cuda::kTensorCores, kTensorCores = true, kSwizzled = true;
  static constexpr bool kWarpgroups = false;
  using VectorTile = SwizzledTile;
  template <class T, Load kA, Load kB>
  using Accumulator = SwizzledAccumulator<SwizzledTile, kA, kB>;
};

}  // namespace
}  // namespace needle::cuda
