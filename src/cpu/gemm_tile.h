// The tiles of the product in gemm.h: their size (Blocking has one row per instruction set),
// partial sums that keep rounding errors small, and storing a tile to the result.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "core/simd.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

using Index = std::int64_t;

// The number of rows of a tile. 2 accumulators per row, two vectors of B and one of A must fit the
// registers (16 in AVX2 and SSE2, 32 in AVX-512 and NEON).
#if defined(__AVX512F__)
constexpr int kTileRows = 14;
#elif defined(__AVX2__)
constexpr int kTileRows = 6;
#elif defined(__ARM_NEON)
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif

template <class T>
struct Blocking {
  static constexpr Index W = simd::kLanes<T>;
  static constexpr int MR = kTileRows;
  static constexpr Index NR = 2 * W;
  static constexpr Index KC = 1024 / Index{sizeof(T)};  // a panel of A (KC x MR) fits half of L1
};

using simd::load;
template <class T>
using Vector = simd::Vector<T>;

template <class T>
[[gnu::always_inline]] inline void store(T* p, const Vector<T>& v) {
  std::memcpy(p, &v, sizeof v);
}

constexpr Index round_up(Index n, Index step) { return (n + step - 1) / step * step; }
constexpr Index ceil_div(Index n, Index step) { return (n + step - 1) / step; }
constexpr Index smaller(Index a, Index b) { return a < b ? a : b; }
constexpr Index larger(Index a, Index b) { return a > b ? a : b; }

// Returns the tile height that suits a product of `rows` rows. with_tile in gemm.h supports it.
template <class T>
Index tile_height(Index rows) {
  constexpr Index MR = Blocking<T>::MR, kHalf = smaller(MR, 8);
  for (const Index height : {1, 2, 4}) {
    if (rows <= height) return height;
  }
  return rows <= kHalf || (rows > MR && rows <= 2 * kHalf) ? kHalf : MR;
}

// The destination of a tile in the result. Only the first `rows` of its MR rows and the first
// `columns` of its NR columns are stored.
template <class T>
struct TileOut {
  T* data;
  Index row_stride, column_stride;
  Index rows, columns;
  bool add;  // add to the present values instead of overwriting them
};

// Prefetches the first lines of the tile while the products are computed.
template <class T, int R>
[[gnu::always_inline]] inline void prefetch_tile(const TileOut<T>& out) {
  if (out.column_stride != 1) return;
  const T* c = out.data;
  for (Index i = 0; i < out.rows; ++i, c += out.row_stride) {
    __builtin_prefetch(c, 1);
    __builtin_prefetch(c + out.columns - 1, 1);
  }
}

// Writes n < 2 * Lanes elements in runs of Lanes, Lanes / 2, ... 1. Each run is a load and a store.
template <class T, Index Lanes>
[[gnu::always_inline]] inline void put_columns(T* to, const T* from, Index n, bool add) {
  if (n & Lanes) {
    for (Index e = 0; e < Lanes; ++e) to[e] = add ? T(to[e] + from[e]) : from[e];
    to += Lanes, from += Lanes;
  }
  if constexpr (Lanes > 1) put_columns<T, Lanes / 2>(to, from, n, add);
}

// Writes the valid part of a tile whose rows have `width` elements.
template <class T>
[[gnu::noinline]] void store_edge(const T* tile, Index width, const TileOut<T>& out) {
  for (Index i = 0; i < out.rows; ++i, tile += width) {
    T* c = out.data + i * out.row_stride;
    if (out.column_stride == 1) {
      put_columns<T, Blocking<T>::NR>(c, tile, out.columns, out.add);
    } else {
      for (Index j = 0; j < out.columns; ++j, c += out.column_stride) {
        *c = out.add ? T(*c + tile[j]) : tile[j];
      }
    }
  }
}

template <class T, int R, int V>
[[gnu::always_inline]] inline void store_tile(const Vector<T> (&acc)[R][V], const TileOut<T>& out) {
  constexpr Index W = Blocking<T>::W;
  if (out.rows == R && out.columns == V * W && out.column_stride == 1) {
    T* c = out.data;
    const Index stride = out.row_stride;
    const bool add = out.add;
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i, c += stride) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        store<T>(c + v * W, add ? load(c + v * W) + acc[i][v] : acc[i][v]);
      }
    }
    return;
  }
  T tile[R * V * W];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store<T>(tile + (i * V + v) * W, acc[i][v]);
  }
  store_edge<T>(tile, V * W, out);
}

// An accumulator sums this many products before it is added to a total in memory, because the
// rounding error of a running sum grows with its length. The last partial sum may have half as many
// more.
constexpr Index kPartial = 128;

// Returns how many of the remaining `left` products the next partial sum takes: about `length`.
constexpr Index partial_of(Index left, Index length = kPartial) {
  return left > length + length / 2 ? length : left;
}

// Adds the accumulators to the total and clears them.
template <class T, int R, int V>
[[gnu::always_inline]] inline void end_partial(Vector<T> (&acc)[R][V], Vector<T> (&total)[R][V],
                                               bool first) {
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      total[i][v] = first ? acc[i][v] : total[i][v] + acc[i][v];
      acc[i][v] = Vector<T>{};
    }
  }
  asm("" : "+m"(total));  // stays in memory: the next partial sum needs the registers
}

template <class T, int R, int V>
[[gnu::always_inline]] inline void add_total(Vector<T> (&acc)[R][V],
                                             const Vector<T> (&total)[R][V]) {
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) acc[i][v] += total[i][v];
  }
}

// Calls `step` k times and adds up the results in partial sums. A call adds one product to each
// accumulator. kShort means that k is one partial sum; such tiles are a tenth faster without
// registers for totals.
template <class T, bool kShort = false, int R, int V, class Step>
[[gnu::always_inline]] inline void add_in_parts(Index k, Vector<T> (&acc)[R][V], Step step) {
  if constexpr (kShort) {
    for (Index p = 0; p < k; ++p) step();
    return;
  }
  Vector<T> total[R][V];
  for (Index left = k, n = 0; left > 0; left -= n) {
    if (left < k) end_partial<T, R, V>(acc, total, left + kPartial == k);
    n = partial_of(left);
    for (Index p = 0; p < n; ++p) step();
  }
  if (partial_of(k) < k) add_total<T, R, V>(acc, total);
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
