// The tile of a block on tensor cores for bf16 and fp16, where operands come by words of 16 bytes.
// An operand is rounded once, on its way to shared memory: a thread reads four numbers into
// registers while the present step is multiplied, and writes them as 8 bytes afterwards. From there
// ldmatrix brings 16 lines x 16 depths to a warp's registers with one instruction.
#pragma once

#include "instructions.h"

namespace needle::cuda {
namespace {

// How threads bring an operand to shared memory: one element at a time, or four neighbours in
// memory as one word of 16 bytes, a quarter of the instructions: four lines, or four depths. Words
// must be aligned, and their elements all inside or all outside.
enum class By { kElements, kLines, kDepths };

// A piece of a step in shared memory, in rows of 32 numbers: by depths one row for each line, by
// lines one for each depth of 32 lines, and so on for the next 32. A row is as long as 16 of the 32
// banks, and ldmatrix reads 16 bytes of each of 8 rows at once: the four parts of a row change
// places with the number of the row, so that these 8 x 16 bytes lie in different banks.
template <int kLines>
struct alignas(512) RoundedPiece {
  static constexpr std::uint32_t kRow = 32, kPart = 8;
  std::uint16_t of[kLines * kRow];

  // Eight rows further down the parts change places alike.
  static __device__ std::uint32_t place(std::uint32_t row, std::uint32_t column) {
    return row * kRow + (column / kPart ^ row / 2 % 4) * kPart + column % kPart;
  }
};

template <class Operand, By kBy, int kLines, class Tile>
struct RoundedLoader {
  using Piece = RoundedPiece<kLines>;
  // Threads side by side: a row of the piece by depths; by lines as many as share a depth, so that
  // a thread has all its words at one depth.
  static constexpr std::uint32_t kAcross =
      kBy == By::kDepths ? Piece::kRow / 4 : Tile::kThreads / Piece::kRow;
  static constexpr std::uint32_t kRows = Tile::kThreads / kAcross;  // that come at once
  static constexpr int kLoads = kLines * int(Piece::kRow) / 4 / Tile::kThreads;
  static_assert(Tile::kStep == Piece::kRow && kLines % Piece::kRow == 0);
  static_assert(kBy == By::kDepths ? kRows % 8 == 0 && kLines % kRows == 0
                                   : kAcross == 4 || kAcross == 8);
  typename Operand::Line lines[kLoads];
  Four words[kLoads];

  static __device__ std::uint32_t column() { return threadIdx.x % kAcross * 4; }
  // Four threads of a row write half of it. Bits 1 and 2 change places, so that the 16 threads that
  // write at once have rows whose halves lie in different banks.
  static __device__ std::uint32_t row() {
    const std::uint32_t n = threadIdx.x / kAcross;
    return kAcross == 4 ? (n & ~6u) | (n & 2) << 1 | (n & 4) >> 1 : n;
  }
  static __device__ std::uint32_t line_of(int i) {
    return kBy == By::kDepths ? row() + i * kRows : column() + i * kAcross * 4;
  }
  __device__ void begin(const Operand& operand, std::uint32_t first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) lines[i] = operand.line(first + line_of(i));
  }
  __device__ void start(const Operand& operand, std::uint32_t k, std::uint32_t end, Piece&) {
    const std::uint32_t number = k + (kBy == By::kDepths ? column() : row());
    const typename Operand::Depth depth = operand.depth(number);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const auto offset = static_cast<std::int32_t>(operand.offset(lines[i], depth));
      words[i] = load_four(operand.base(lines[i], depth), offset,
                           (number < end) & operand.has(lines[i], depth));
    }
  }
  __device__ void finish(const Operand&, Piece& piece) const {
    const std::uint32_t place = Piece::place(row(), column());
    std::uint16_t* const halves[2] = {&piece.of[place], &piece.of[place ^ Piece::kRow / 2]};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float (&w)[4] = words[i].of;
      std::uint16_t* const to = kAcross == 4 ? halves[i % 2] + i / 2 * Piece::kRow * Piece::kRow
                                             : halves[0] + i * kRows * Piece::kRow;
      store_two(to, pair<Tile::kPrecision>(w[0], w[1]), pair<Tile::kPrecision>(w[2], w[3]));
    }
  }
};

// Numbers that are bf16 in memory need no rounding: cp.async copies 8 of them, a part of a row,
// past the registers.
template <class T, class Operand, By kBy, int kLines, class Tile>
struct StoredLoader {
  using Piece = RoundedPiece<kLines>;
  struct alignas(16) Part {
    T of[Piece::kPart];
  };
  static constexpr std::uint32_t kAcross = Piece::kRow / Piece::kPart;
  static constexpr std::uint32_t kRows = Tile::kThreads / kAcross;  // that come at once
  static constexpr int kLoads = kLines / int(kRows);
  static_assert(Tile::kStep == Piece::kRow && kLines % kRows == 0 && kRows % Piece::kRow == 0);
  typename Operand::Line lines[kLoads];
  Copy<Part> copies[kLoads];

  static __device__ std::uint32_t column() { return threadIdx.x % kAcross * Piece::kPart; }
  static __device__ std::uint32_t row() { return threadIdx.x / kAcross; }
  static __device__ Part* place(Piece& piece, int i) {
    return reinterpret_cast<Part*>(
        &piece.of[Piece::place(row(), column()) + i * kRows * Piece::kRow]);
  }
  __device__ void begin(const Operand& operand, std::uint32_t first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const std::uint32_t at = row() + i * kRows;
      const std::uint32_t line =
          kBy == By::kDepths ? at : at / Piece::kRow * Piece::kRow + column();
      lines[i] = operand.line(first + line);
    }
  }
  __device__ void start(const Operand& operand, std::uint32_t k, std::uint32_t end, Piece& piece) {
    const std::uint32_t number = k + (kBy == By::kDepths ? column() : row() % Piece::kRow);
    const typename Operand::Depth depth = operand.depth(number);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const T* from = operand.base(lines[i], depth) + operand.offset(lines[i], depth);
      copies[i].start(place(piece, i), reinterpret_cast<const Part*>(from),
                      (number < end) & operand.has(lines[i], depth));
    }
  }
  __device__ void finish(const Operand&, Piece& piece) const {
    Copy<Part>::wait();
#pragma unroll
    for (int i = 0; i < kLoads; ++i) copies[i].finish(place(piece, i));
  }
};

// A warp's sums, kWarpM x kWarpN of the tile as pieces of 16 x 8, as multiply_add has them.
template <class Tile>
struct WarpSums {
  static constexpr int kDown = Tile::kWarpM / 16, kAcross = Tile::kWarpN / 8;
  float sums[kDown][kAcross][4] = {};

  static __device__ int lane() { return int(threadIdx.x) % kWarp; }
  static __device__ int first_row() {
    return int(threadIdx.x) / kWarp / (Tile::kTileN / Tile::kWarpN) * Tile::kWarpM;
  }
  static __device__ int first_column() {
    return int(threadIdx.x) / kWarp % (Tile::kTileN / Tile::kWarpN) * Tile::kWarpN;
  }
  static constexpr int kRows = kDown * 2, kColumns = kAcross * 2;
  static __device__ int row_of(int i) { return first_row() + lane() / 4 + i * 8; }
  static __device__ int column_of(int j) {
    return first_column() + lane() % 4 * 2 + j / 2 * 8 + j % 2;
  }
  __device__ float sum(int i, int j) const { return sums[i / 2][j / 2][i % 2 * 2 + j % 2]; }
  // For moments.h: a slice is kSliceRows consecutive rows of the tile, whose columns warps have.
  // The slices of 64 rows follow each other; moment_row: the first row of 64 of those that all
  // warps have as their n-th.
  static constexpr int kSliceRows = Tile::kWarpM, kSlices = Tile::kTileM / Tile::kWarpM;
  static constexpr int kTileN = Tile::kTileN;
  static __device__ int slice() { return first_row() / Tile::kWarpM; }
  static __device__ int moment_row(int number, int) { return number * 64; }
  __device__ void settle() {}
};

template <class Tile, By kA, By kB>
struct RoundedPart : WarpSums<Tile> {
  using WarpSums<Tile>::kDown, WarpSums<Tile>::kAcross;

  // Words of 16 lines from `line` of the warp's on and 16 depths from `depth` on, as four matrices
  // of 8 x 8. kLinesFirst: the second matrix has the next lines, as in multiply_add's a; else the
  // next depths.
  template <By kBy, bool kLinesFirst, int kLines>
  static __device__ void load(const RoundedPiece<kLines>& piece, int first, int line, int depth,
                              std::uint32_t (&words)[4]) {
    using Piece = RoundedPiece<kLines>;
    constexpr bool kDeep = kBy == By::kDepths;
    const int lane = WarpSums<Tile>::lane(), row = lane % 8;
    const int lines = (kLinesFirst ? lane / 8 % 2 : lane / 16) * 8;
    const int depths = (kLinesFirst ? lane / 16 : lane / 8 % 2) * 8;
    const std::uint32_t place =
        kDeep ? Piece::place(first + lines + row, depths + depth) + line * Piece::kRow
              : Piece::place(first / 32 * 32 + depths + row, first % 32 + lines + line % 32) +
                    (line / 32 * 32 + depth) * Piece::kRow;
    load_matrices<!kDeep>(words, &piece.of[place]);
  }
  template <class PieceA, class PieceB>
  __device__ void add(const PieceA& a, const PieceB& b) {
    static_assert(kAcross % 2 == 0);
#pragma unroll
    for (int k = 0; k < Tile::kStep; k += 16) {
      std::uint32_t left[kDown][4], right[kAcross / 2][4];
#pragma unroll
      for (int i = 0; i < kDown; ++i) load<kA, true>(a, this->first_row(), i * 16, k, left[i]);
#pragma unroll
      for (int j = 0; j < kAcross / 2; ++j) {
        load<kB, false>(b, this->first_column(), j * 16, k, right[j]);
      }
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
          const std::uint32_t (&w)[4] = right[j / 2];
          multiply_add<Tile::kPrecision>(this->sums[i][j], left[i],
                                         {w[j % 2 * 2], w[j % 2 * 2 + 1]});
        }
      }
    }
  }
};

template <Precision kPrecision_, int kM, int kN, int kK, int kWarpM_, int kWarpN_>
struct RoundedTile {
  static constexpr Precision kPrecision = kPrecision_;
  static constexpr int kTileM = kM, kTileN = kN, kStep = kK, kWarpM = kWarpM_, kWarpN = kWarpN_;
  static constexpr int kThreads = (kM / kWarpM) * (kN / kWarpN) * kWarp;
  // Of a processor: the sums of the largest tile and the words on their way take more registers
  // than two blocks would have.
  static constexpr int kBlocks = kM * kN > 128 * 64 ? 1 : kM * kN == 128 * 64 ? 2 : 4;
  static constexpr bool kRuns = cuda::kTensorCores, kTensorCores = true, kRounded = true;
  static constexpr bool kWarpgroups = false;
  using OfWords = RoundedTile;
  template <class T, By kA, By kB>
  using Part = RoundedPart<RoundedTile, kA, kB>;
};

}  // namespace
}  // namespace needle::cuda
