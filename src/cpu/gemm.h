// The register-blocked product that matmul and conv2d share: packing and micro-kernels, as
// templates on the element type. One source serves every instruction set through the compiler's
// vector types; an instruction set is one row of Blocking below.
//
// A micro-kernel keeps an MR x NR tile of the result in registers and walks along k: a row of NR
// elements of B (two vectors) and MR scalars of A give MR*NR multiply-adds. Everything is in an
// anonymous namespace: objects of different instruction sets must share no code.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/simd.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

using Index = std::int64_t;

// Rows of a tile: rows * 2 accumulators, two vectors of B and one of A have to fit the registers
// (16 in AVX2 and SSE2, 32 in AVX-512 and NEON).
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
  static constexpr Index KC = 1024 / Index{sizeof(T)};  // a panel of B (KC x NR) fits half of L1
  static constexpr Index MC = 96 / MR * MR;             // a block of A (MC x KC) fits a part of L2
  static constexpr Index NC = 256;                      // columns of one task
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

// Where a tile of the result goes: `rows` of its MR rows and `columns` of its NR columns are real.
template <class T>
struct TileOut {
  T* data;
  Index row_stride, column_stride;
  Index rows, columns;
  bool add;  // to what is there, else overwrite
};

template <class T, int R>
[[gnu::always_inline]] inline void store_tile(const Vector<T> (&acc)[R][2], const TileOut<T>& out) {
  constexpr Index W = Blocking<T>::W;
  if (out.rows == R && out.columns == 2 * W && out.column_stride == 1) {
    T* c = out.data;
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i, c += out.row_stride) {
      store<T>(c, out.add ? load(c) + acc[i][0] : acc[i][0]);
      store<T>(c + W, out.add ? load(c + W) + acc[i][1] : acc[i][1]);
    }
    return;
  }
  T tile[R * 2 * W];
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    store<T>(tile + i * 2 * W, acc[i][0]);
    store<T>(tile + i * 2 * W + W, acc[i][1]);
  }
  for (Index i = 0; i < out.rows; ++i) {
    T* c = out.data + i * out.row_stride;
    for (Index j = 0; j < out.columns; ++j, c += out.column_stride) {
      *c = out.add ? T(*c + tile[i * 2 * W + j]) : tile[i * 2 * W + j];
    }
  }
}

// One step along k: acc += (R scalars of A) outer (two vectors of B).
template <class T, int R, class ScalarOfA>
[[gnu::always_inline]] inline void outer_product(Vector<T> (&acc)[R][2], const T* b, ScalarOfA a) {
  const Vector<T> b0 = load(b), b1 = load(b + Blocking<T>::W);
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    const T scalar = a(i);
    acc[i][0] += scalar * b0;
    acc[i][1] += scalar * b1;
  }
}

// a packed as k x MR; b as k rows of NR elements, `b_stride` apart.
template <class T>
[[gnu::noinline]] void packed_tile(Index k, const T* a, const T* b, Index b_stride,
                                   const TileOut<T>& out) {
  constexpr int MR = Blocking<T>::MR;
  Vector<T> acc[MR][2] = {};
  for (Index p = 0; p < k; ++p, a += MR, b += b_stride) {
    outer_product<T, MR>(acc, b, [a](int i) { return a[i]; });
  }
  store_tile<T, MR>(acc, out);
}

// A unpacked: `runs` times R pointers, each to `length` elements `step` apart, follow one another
// along k. A row of matmul is one run; a patch of conv2d is a run of channels for each tap.
// Rows of b (NR elements) lie `b_stride` apart.
template <class T, int R>
[[gnu::noinline]] void rows_tile(Index runs, Index length, const T* const* a, Index step,
                                 const T* b, Index b_stride, const TileOut<T>& out) {
  Vector<T> acc[R][2] = {};
  for (Index run = 0; run < runs; ++run, a += R) {
    const T* rows[R];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) rows[i] = a[i];
    Index at = 0;
    for (Index p = 0; p < length; ++p, b += b_stride, at += step) {
      outer_product<T, R>(acc, b, [&rows, at](int i) { return rows[i][at]; });
    }
  }
  store_tile<T, R>(acc, out);
}

// An m x k block of A as panels of MR rows, each k x MR; missing rows are zeros.
template <class T>
void pack_a(const T* a, Index row_stride, Index k_stride, Index m, Index k, T* packed) {
  constexpr int MR = Blocking<T>::MR;
  for (Index i = 0; i < m; i += MR, packed += MR * k) {
    const T* panel = a + i * row_stride;
    const Index rows = smaller(MR, m - i);
    if (rows == MR && row_stride == 1) {
      for (Index p = 0; p < k; ++p)
        std::memcpy(packed + p * MR, panel + p * k_stride, MR * sizeof(T));
    } else if (rows == MR && k_stride == 1) {
      for (Index p = 0; p < k; ++p) {
#pragma GCC unroll 16
        for (int r = 0; r < MR; ++r) packed[p * MR + r] = panel[r * row_stride + p];
      }
    } else {
      for (Index p = 0; p < k; ++p) {
        for (Index r = 0; r < MR; ++r) {
          packed[p * MR + r] = r < rows ? panel[r * row_stride + p * k_stride] : T(0);
        }
      }
    }
  }
}

// A k x n block of B as panels of NR columns, each k x NR; missing columns are zeros.
template <class T>
void pack_b(const T* b, Index k_stride, Index column_stride, Index k, Index n, T* packed) {
  constexpr Index NR = Blocking<T>::NR;
  for (Index j = 0; j < n; j += NR, packed += NR * k) {
    const T* panel = b + j * column_stride;
    const Index columns = smaller(NR, n - j);
    if (columns == NR && column_stride == 1) {
      for (Index p = 0; p < k; ++p)
        std::memcpy(packed + p * NR, panel + p * k_stride, NR * sizeof(T));
    } else if (columns == NR) {
      for (Index p = 0; p < k; ++p) {
#pragma GCC unroll 8
        for (Index c = 0; c < NR; ++c) packed[p * NR + c] = panel[c * column_stride + p * k_stride];
      }
    } else {
      for (Index p = 0; p < k; ++p) {
        for (Index c = 0; c < NR; ++c) {
          packed[p * NR + c] = c < columns ? panel[c * column_stride + p * k_stride] : T(0);
        }
      }
    }
  }
}

// (m x k packed by pack_a) @ (k x n packed by pack_b) into c, tile by tile: the panel of B stays in
// L1 while the panels of A pass by from L2.
template <class T>
void packed_block(Index m, Index n, Index k, const T* a, const T* b, T* c, Index row_stride,
                  Index column_stride, bool add) {
  constexpr Index MR = Blocking<T>::MR, NR = Blocking<T>::NR;
  for (Index j = 0; j < n; j += NR) {
    for (Index i = 0; i < m; i += MR) {
      packed_tile<T>(k, a + i * k, b + j * k, NR,
                     {c + i * row_stride + j * column_stride, row_stride, column_stride,
                      smaller(MR, m - i), smaller(NR, n - j), add});
    }
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
