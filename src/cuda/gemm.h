// The product of two matrices on a GPU, wherever their elements come from (matmul, convolutions).
// A block computes one tile of the result. It walks along k in steps: all threads bring a piece of
// a (kTileM x kStep) and of b (kStep x kTileN) into shared memory, then each multiplies its
// kRegM x kRegN part of the tile in registers. There are two or three of each piece: the next ones
// are on their way from memory while the present ones are multiplied (by cp.async, where there is:
// instructions.h), and one barrier a step is enough. A thread computes its Part of the tile from
// the pieces: here in full precision, in tensor_tile.h and rounded_tile.h by tensor cores. A value
// loaded into shared memory is used kTileN (kTileM) times, one loaded into a register kRegN (kRegM)
// times: this reuse makes arithmetic, not memory, the limit. Registers are filled 16 bytes at a
// time, or loads would be as many as a quarter of the multiplications.
#pragma once

#include <algorithm>
#include <cstdint>

#include "precision.h"
#include "tensor_tile.h"
#include "warpgroup_tile.h"

namespace needle::cuda {
namespace {

// A piece of a step in shared memory, and the operand's element in it; the padding puts what a warp
// reads at once into different banks. Words of four depths stay together: [line][depth].
template <class T, By kBy, int kLines, class Tile>
struct PieceOf {
  using Type = std::conditional_t<kBy == By::kDepths, T[kLines][Tile::kStep + 4],
                                  T[Tile::kStep][kLines + Tile::kPadding / sizeof(T)]>;
};
template <class T, By kBy, int kLines, class Tile>
  requires Tile::kRounded
struct PieceOf<T, kBy, kLines, Tile> {
  using Type = RoundedPiece<kLines>;
};
template <class T, By kBy, int kLines, class Tile>
using Piece = typename PieceOf<T, kBy, kLines, Tile>::Type;

// The interface of an operand (a by its rows, b by its columns: "lines"):
//   Line line(n), Depth depth(k)     the constant part along a line, and across lines
//   bool has(line, depth)            false where the element is outside and counts as 0
//   const T* base(line, depth)       its address less an offset; lines beyond the last have some
//   offset(line, depth)              element's; by words the offset has 32 bits
//   bool deep()                      true if memory is contiguous along k
// Single elements are taken in the order of memory, along k eight at a time, so that a warp reads
// whole sectors of it.
template <class T, class Operand, By kBy, int kLines, class Tile>
struct Loader {
  struct alignas(4 * sizeof(T)) Four {
    T of[4];
  };
  static constexpr bool kWide = kBy != By::kElements;
  using Word = std::conditional_t<kWide, Four, T>;
  static constexpr int kStep = Tile::kStep, kThreads = Tile::kThreads;
  static constexpr int kPack = kWide ? 4 : 1, kRun = 8, kWords = kLines * kStep / kPack;
  static constexpr int kLoads = (kWords + kThreads - 1) / kThreads;
  static_assert((kWide || kWords % kThreads == 0) && kStep % kRun == 0 && kLines % kPack == 0);
  static constexpr bool kAsync = true;
  typename Operand::Line lines[kLoads];
  Copy<Word> copies[kLoads];

  static __device__ int word(int i) { return int(threadIdx.x) + i * kThreads; }
  static __device__ bool some(int i) { return kWords % kThreads == 0 || word(i) < kWords; }
  static __device__ int line_of(bool deep, int i) {
    if constexpr (kBy == By::kLines) return word(i) % (kLines / kPack) * kPack;
    if constexpr (kBy == By::kDepths) return word(i) / (kStep / kPack);
    return deep ? word(i) / kRun % kLines : word(i) % kLines;
  }
  static __device__ int depth_of(bool deep, int i) {
    if constexpr (kBy == By::kLines) return word(i) / (kLines / kPack);
    if constexpr (kBy == By::kDepths) return word(i) % (kStep / kPack) * kPack;
    return deep ? word(i) % kRun + word(i) / (kRun * kLines) * kRun : word(i) / kLines;
  }
  static __device__ Word* place(Piece<T, kBy, kLines, Tile>& piece, bool deep, int i) {
    const int line = line_of(deep, i), depth = depth_of(deep, i);
    if constexpr (kBy == By::kDepths) return reinterpret_cast<Word*>(&piece[line][depth]);
    if constexpr (kBy != By::kDepths) return reinterpret_cast<Word*>(&piece[depth][line]);
  }
  __device__ void begin(const Operand& operand, std::uint32_t first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) lines[i] = operand.line(first + line_of(operand.deep(), i));
  }
  __device__ void start(const Operand& operand, std::uint32_t k, std::uint32_t end,
                        Piece<T, kBy, kLines, Tile>& piece) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (!some(i)) continue;
      const std::uint32_t number = k + depth_of(operand.deep(), i);
      const auto from = [&](const typename Operand::Depth& depth) {
        return reinterpret_cast<const Word*>(operand.base(lines[i], depth) +
                                             operand.offset(lines[i], depth));
      };
      if constexpr (kWide) {
        const typename Operand::Depth depth = operand.depth(number);
        const bool is = (number < end) & operand.has(lines[i], depth);
        copies[i].start(place(piece, operand.deep(), i), from(depth), is);
      } else {
        const Word* found = nullptr;
        if (number < end) {
          const typename Operand::Depth depth = operand.depth(number);
          if (operand.has(lines[i], depth)) found = from(depth);
        }
        copies[i].start(place(piece, operand.deep(), i), found, found != nullptr);
      }
    }
  }
  __device__ void finish(const Operand& operand, Piece<T, kBy, kLines, Tile>& piece) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (some(i)) copies[i].finish(place(piece, operand.deep(), i));
    }
  }
};

template <class T, class Operand, By kBy, int kLines, class Tile>
  requires Tile::kRounded
struct Loader<T, Operand, kBy, kLines, Tile>
    : std::conditional_t<sizeof(T) == 2, StoredLoader<T, Operand, kBy, kLines, Tile>,
                         RoundedLoader<Operand, kBy, kLines, Tile>> {};

// Of a processor. Words of bf16 take no registers on their way, so two blocks of the largest tile
// fit; single elements of it take more than others, as no instruction copies two bytes.
template <class T, class Tile, By kA>
inline constexpr int kBlocksOf = sizeof(T) != 2        ? Tile::kBlocks
                                 : kA == By::kElements ? 1
                                                       : std::max(2, Tile::kBlocks);

// Of pieces in shared memory: one is multiplied while the others are on their way. Three of bf16
// take the 48 KB that a kernel has without asking for more; words that wait in registers are one.
template <class T, class Tile>
inline constexpr int kStages = Tile::kRounded && sizeof(T) == 2 ? 3 : 2;

// Neighbours in a word of 16 bytes.
template <class T>
inline constexpr std::int64_t kWord = 16 / sizeof(T);

// A thread's kReg lines of kTile lie in groups of kVector neighbours, 16 bytes if there are as
// many; the groups of all threads side by side.
template <class T, int kTile, int kReg>
struct Lines {
  static constexpr int kVector = std::min(kReg, 16 / int(sizeof(T)));
  struct alignas(sizeof(T) * kVector) Group {
    T of[kVector];
  };
  static __device__ int place(int thread, int i) {
    return i / kVector * (kTile / kReg * kVector) + thread * kVector + i % kVector;
  }
  static __device__ void load(const T* row, int thread, T (&values)[kReg]) {
#pragma unroll
    for (int i = 0; i < kReg; i += kVector) {
      const Group group = *reinterpret_cast<const Group*>(&row[place(thread, i)]);
#pragma unroll
      for (int j = 0; j < kVector; ++j) values[i + j] = group.of[j];
    }
  }
};

// A thread's kRegM x kRegN of the tile.
template <class T, class Tile, By kA, By kB>
struct RegisterPart {
  static_assert(kA != By::kDepths && kB != By::kDepths);  // lines are loaded as vectors
  using Rows = Lines<T, Tile::kTileM, Tile::kRegM>;
  using Columns = Lines<T, Tile::kTileN, Tile::kRegN>;
  T sums[Tile::kRegM][Tile::kRegN] = {};

  static __device__ int row() { return int(threadIdx.x) / Tile::kAcross; }
  static __device__ int column() { return int(threadIdx.x) % Tile::kAcross; }

  __device__ void add(const Piece<T, kA, Tile::kTileM, Tile>& a,
                      const Piece<T, kB, Tile::kTileN, Tile>& b) {
#pragma unroll
    for (int k = 0; k < Tile::kStep; ++k) {
      T x[Tile::kRegM], y[Tile::kRegN];
      Rows::load(a[k], row(), x);
      Columns::load(b[k], column(), y);
#pragma unroll
      for (int i = 0; i < Tile::kRegM; ++i) {
#pragma unroll
        for (int j = 0; j < Tile::kRegN; ++j) sums[i][j] += x[i] * y[j];
      }
    }
  }
  // The thread's sums are those of kRows rows and kColumns columns of the tile.
  static constexpr int kRows = Tile::kRegM, kColumns = Tile::kRegN;
  static __device__ int row_of(int i) { return Rows::place(row(), i); }
  static __device__ int column_of(int j) { return Columns::place(column(), j); }
  __device__ T sum(int i, int j) const { return sums[i][j]; }
  __device__ void settle() {}
};

template <int kM, int kN, int kK, int kRegM_, int kRegN_>
struct RegisterTile {
  static constexpr int kTileM = kM, kTileN = kN, kStep = kK, kRegM = kRegM_, kRegN = kRegN_;
  static constexpr int kAcross = kN / kRegN, kThreads = (kM / kRegM) * kAcross;
  static constexpr int kPadding = 16;  // bytes
  // Of a processor: two of 256 threads with 128 registers each; two of the largest would spill.
  static constexpr int kBlocks = kThreads == 256 && kM * kN <= 128 * 64 ? 2 : 1;
  static constexpr bool kRuns = true, kTensorCores = false, kRounded = false;
  using OfWords = RegisterTile;
  template <class T, By kA = By::kElements, By kB = By::kElements>
  using Part = RegisterPart<T, RegisterTile, kA, kB>;
};

template <Precision kPrecision, class InFull, class OnTensorCores>
using TileFor = std::conditional_t<kPrecision == Precision::kFloat32, InFull, OnTensorCores>;
// For results with tiles enough for every processor, and for smaller ones.
template <Precision kPrecision>
using LargeTile = TileFor<kPrecision, RegisterTile<128, 128, 8, 8, 8>,
                          TensorTile<kPrecision, 128, 128, 16, 64, 32>>;
template <Precision kPrecision>
using SmallTile =
    TileFor<kPrecision, RegisterTile<32, 32, 16, 2, 4>, TensorTile<kPrecision, 64, 32, 16, 32, 16>>;

// f(the tile for operands by words, as a type). In a small tile warpgroups would save nothing: most
// instructions bring operands.
template <class Tile, class F>
decltype(auto) with_words(int device, F&& f) {
  using Words = typename Tile::OfWords;
  if constexpr (Words::kRounded && Words::kTileM >= 128) {
    if (has_warpgroups(device)) return f(std::type_identity<OnWarpgroups<Words>>{});
  }
  return f(std::type_identity<Words>{});
}

// The interface of a result, whose elements outside are not stored:
//   Row row(n), Column column(n)      what all elements of a row (column) share; bool is: inside
//   void put(row, column, value)
//   void finish(part, row, column)    optional, of bulk_product: after the tile at row and column
// ResultRow and ResultColumn are what most results need of a row and a column.
template <class T>
struct ResultRow {
  T* data;
  bool is;
};
struct ResultColumn {
  std::int64_t offset;
  bool is;
};

template <class Part, class Result>
__device__ void store(const Part& part, const Result& result, std::uint32_t row,
                      std::uint32_t column) {
  typename Result::Column columns[Part::kColumns];
#pragma unroll
  for (int j = 0; j < Part::kColumns; ++j) columns[j] = result.column(column + part.column_of(j));
#pragma unroll
  for (int i = 0; i < Part::kRows; ++i) {
    const typename Result::Row of = result.row(row + part.row_of(i));
    if (!of.is) continue;
#pragma unroll
    for (int j = 0; j < Part::kColumns; ++j) {
      if (columns[j].is) result.put(of, columns[j], part.sum(i, j));
    }
  }
}

// The tile of the result from `row` and `column` on, of the sums over k in [begin, end).
template <class T, class Tile, By kA = By::kElements, By kB = By::kElements, class A, class B,
          class Result>
__device__ void tile_product(const A& a, const B& b, std::uint32_t row, std::uint32_t column,
                             std::uint32_t begin, std::uint32_t end, const Result& result) {
  if constexpr (Tile::kRuns) {
    using PieceA = Piece<T, kA, Tile::kTileM, Tile>;
    using PieceB = Piece<T, kB, Tile::kTileN, Tile>;
    constexpr int kPieces = kStages<T, Tile>, kAhead = kPieces - 1;
    NEEDLE_SHARED(pieces_a, PieceA[kPieces]);
    NEEDLE_SHARED(pieces_b, PieceB[kPieces]);
    using LoaderA = Loader<T, A, kA, Tile::kTileM, Tile>;
    LoaderA loader_a;
    Loader<T, B, kB, Tile::kTileN, Tile> loader_b;
    typename Tile::template Part<T, kA, kB> part;
    // Unrolled, a piece's address is a constant; by elements that would take too many registers.
    [[maybe_unused]] constexpr int kUnrolled = kA == By::kElements ? 1 : kPieces;
    // Ends the group of a step's copies; waits for all groups but the kAhead - 1 latest.
    [[maybe_unused]] const auto commit = [] {
      if constexpr (LoaderA::kAsync) commit_copies();
    };
    [[maybe_unused]] const auto wait = [] {
      if constexpr (LoaderA::kAsync) wait_for_copies<kAhead - 1>();
    };
    /// BEGIN SOLUTION [cuda-gemm-tile]
    const auto start = [&](std::uint32_t k, int place) {
      if (k < end) {
        loader_a.start(a, k, end, pieces_a[place]);
        loader_b.start(b, k, end, pieces_b[place]);
      }
      commit();
    };
    loader_a.begin(a, row);
    loader_b.begin(b, column);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) start(begin + i * Tile::kStep, i);
    for (std::uint32_t first = begin; first < end; first += kPieces * Tile::kStep) {
#pragma unroll(kUnrolled)
      for (int present = 0; present < kPieces; ++present) {
        const std::uint32_t k = first + present * Tile::kStep;
        if (k >= end) break;
        wait();
        loader_a.finish(a, pieces_a[present]);
        loader_b.finish(b, pieces_b[present]);
        part.settle();
        __syncthreads();
        start(k + kAhead * Tile::kStep, (present + kAhead) % kPieces);
        part.add(pieces_a[present], pieces_b[present]);
      }
    }
    /// END SOLUTION
    part.settle();
    store(part, result, row, column);
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

// How many of k a part has: whole steps of any tile.
inline std::uint32_t part_of_k(std::uint32_t k, std::uint32_t parts) {
  constexpr std::uint32_t kStep = 32;
  return parts == 1 ? k : ceil_div(ceil_div(k, parts), kStep) * kStep;
}

}  // namespace
}  // namespace needle::cuda
