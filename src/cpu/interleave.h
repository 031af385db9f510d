// Converts rows of one channel to pixels of adjacent channels and back, for conv_planes.h. Blocks
// of W x W elements are transposed in registers.
#pragma once

#include "gemm_pack.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// Stores to[v * step + e] = lane e of block[v], for the first `filled` lanes of `count` vectors.
// Where these are contiguous, a vector may reach into the next one, which is stored after it.
template <class T>
[[gnu::always_inline]] inline void store_block(const Vector<T> (&block)[Blocking<T>::W],
                                               Index count, Index filled, T* to, Index step) {
  constexpr Index W = Blocking<T>::W;
  if (filled == W && count == W) {
#pragma GCC unroll 16
    for (Index v = 0; v < W; ++v, to += step) store<T>(to, block[v]);
    return;
  }
  T lanes[W * W];
#pragma GCC unroll 16
  for (Index v = 0; v < W; ++v) store<T>(lanes + v * W, block[v]);
  const Index whole = filled == W      ? count
                      : filled == step ? larger(0, count - ceil_div(W, step) + 1)
                                       : 0;
  for (Index v = 0; v < whole; ++v) store<T>(to + v * step, load(lanes + v * W));
  for (Index v = whole; v < count; ++v) {
    put_columns<T, W / 2>(to + v * step, lanes + v * W, filled, false);
  }
}

// Computes to[x * step + c] = rows[c * row_size + x] + bias[c], clamped to at least `least`, for
// the first n values of x. Whole vectors of rows and biases are read, even past the last channel.
// The last channels of a pixel, which may not fill a vector, are written first.
template <class T>
void interleave(const T* rows, Index row_size, const T* bias, T least, Index channels, Index n,
                T* to, Index step) {
  constexpr Index W = Blocking<T>::W;
  const Vector<T> floor = Vector<T>{} + least;
  for (Index x = 0; x < n; x += W) {
    for (Index c = (channels - 1) / W * W; c >= 0; c -= W) {
      Vector<T> block[W];
      const T* from = rows + c * row_size + x;
#pragma GCC unroll 16
      for (Index i = 0; i < W; ++i) {
        block[i] = load(from + i * row_size) + bias[c + i];
        block[i] = floor > block[i] ? floor : block[i];
      }
      transpose<T>(block);
      store_block<T>(block, smaller(W, n - x), smaller(W, channels - c), to + x * step + c, step);
    }
  }
}

// Computes rows[c * row_size + x] = from[x * step + c] for the first n values of x. Vectors are
// read as long as they end at or before `end`.
template <class T>
void separate(const T* from, Index step, Index channels, Index n, const T* end, T* rows,
              Index row_size) {
  constexpr Index W = Blocking<T>::W;
  Index x = 0;
  for (; x < n; x += W) {
    if (from + (x + W - 1) * step + round_up(channels, W) > end) break;
    for (Index c = 0; c < channels; c += W) {
      Vector<T> block[W];
#pragma GCC unroll 16
      for (Index r = 0; r < W; ++r) block[r] = load(from + (x + r) * step + c);
      transpose<T>(block);
      store_block<T>(block, smaller(W, channels - c), smaller(W, n - x), rows + c * row_size + x,
                     row_size);
    }
  }
  for (; x < n; ++x) {
    for (Index c = 0; c < channels; ++c) rows[c * row_size + x] = from[x * step + c];
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
