// Trail 13 of 30: packed_tile: a tile of the product stays in registers.
// Next: python/needle/accelerated/convolution.py

// The register-blocked product that matmul and conv2d share, as templates on the element type. This
// file has the micro-kernels, gemm_tile.h the size and the output of their tiles, and gemm_pack.h
// the packing. One source serves every instruction set through the compiler's vector types.
//
// A micro-kernel keeps an MR x NR tile of the result in registers and walks along k: a row of NR
// elements of B (two vectors) and MR scalars of A give MR*NR multiply-adds. Everything is in an
// anonymous namespace: objects of different instruction sets must share no code.
#pragma once

#include <type_traits>

#include "gemm_tile.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// Performs one step along k: adds the outer product of R scalars of A and V vectors of B to acc.
template <class T, int R, int V, class ScalarOfA>
[[gnu::always_inline]] inline void outer_product(Vector<T> (&acc)[R][V], const T* b, ScalarOfA a) {
  Vector<T> row[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) row[v] = load(b + v * Blocking<T>::W);
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i) {
    const T scalar = a(i);
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) acc[i][v] += scalar * row[v];
  }
}

template <class T>
using PackedStep = std::integral_constant<Index, Blocking<T>::MR>;

// Computes a tile. a has k rows, `a_step` apart, of which the first R elements are used; b has k
// rows of V vectors, `b_stride` apart. If a is not packed, its next k rows are prefetched.
template <class T, int R = Blocking<T>::MR, int V = 2, class Step = PackedStep<T>>
[[gnu::noinline]] void packed_tile(Index k, const T* a, const T* b, Index b_stride,
                                   const TileOut<T>& out, Step a_step = {}) {
  prefetch_tile<T, R>(out);
  Vector<T> acc[R][V] = {};
  [[maybe_unused]] const Index ahead = k * a_step;
  add_in_parts<T>(k, acc, [&] {
    if constexpr (std::is_same_v<Step, Index>) __builtin_prefetch(a + ahead, 0, 2);
    outer_product<T, R>(acc, b, [a](int i) { return a[i]; });
    a += a_step, b += b_stride;
  });
  store_tile<T, R>(acc, out);
}

using One = std::integral_constant<Index, 1>;

// Computes a tile without packing A. k consists of `runs` runs. For each run, `a` has R pointers,
// one per row of the tile, to `length` elements that are `step` apart. A row of matmul is one run;
// a patch of conv2d has one run of channels per tap. b has rows of V vectors, `b_stride` apart.
// `runs` is a number, or One, which needs fewer registers.
template <class T, int R, int V = 2, class Runs>
[[gnu::noinline]] void rows_tile(Runs runs, Index length, const T* const* a, Index step, const T* b,
                                 Index b_stride, const TileOut<T>& out) {
  prefetch_tile<T, R>(out);
  Vector<T> acc[R][V] = {}, total[R][V];
  asm("" : "=m"(total));  // silences a warning: end_partial writes it before it is read
  const Index k = runs * length;
  Index left = k, room = partial_of(k);
  for (Index run = 0; run < runs; ++run, a += R) {
    const T* rows[R];
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) rows[i] = a[i];
    Index offset = 0;
    for (Index rest = length, n = 0; rest > 0; rest -= n, left -= n, room -= n) {
      if (room == 0) {
        end_partial<T, R, V>(acc, total, left + kPartial == k);
        room = partial_of(left);
      }
      n = smaller(rest, room);
      for (Index p = 0; p < n; ++p, b += b_stride, offset += step) {
        outer_product<T, R>(acc, b, [&rows, offset](int i) { return rows[i][offset]; });
      }
    }
  }
  if (partial_of(k) < k) add_total<T, R, V>(acc, total);
  store_tile<T, R>(acc, out);
}

// Calls tile.operator()<R, V>() for the smallest tile of R rows and V vectors that holds the shape.
template <class T, class F>
[[gnu::always_inline]] inline void with_tile(Index rows, Index columns, F&& tile) {
  constexpr int MR = Blocking<T>::MR, kHalf = smaller(MR, 8);
  const auto of_height = [&]<int R>() {
    const bool wide = columns > Blocking<T>::W;
    wide ? tile.template operator()<R, 2>() : tile.template operator()<R, 1>();
  };
  if (rows > kHalf) return of_height.template operator()<MR>();
  if (rows > 4) return of_height.template operator()<kHalf>();
  if (rows > 2) return of_height.template operator()<4>();
  if (rows == 2) return of_height.template operator()<2>();
  of_height.template operator()<1>();
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
