// Packing for the micro-kernels of gemm.h: blocks of A and B become panels that are read
// sequentially. Packing handles every transposition and stride of an operand.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gemm.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kPackedTogether = 16;

// Does what pack_a does, for a row stride of 1. It packs a few steps along k of all panels at a
// time, so that memory is read sequentially.
template <class T>
void pack_a_across(const T* a, Index k_stride, Index m, Index k, T* packed) {
  constexpr int MR = Blocking<T>::MR;
  for (Index first = 0; first < k; first += kPackedTogether) {
    const Index last = smaller(k, first + kPackedTogether);
    for (Index i = 0; i < m; i += MR) {
      T* const panel = packed + i * k;
      const Index rows = smaller(MR, m - i);
      for (Index p = first; p < last; ++p) {
        const T* from = a + p * k_stride + i;
        if (rows == MR) {
          std::memcpy(panel + p * MR, from, MR * sizeof(T));
        } else {
          for (Index r = 0; r < MR; ++r) panel[p * MR + r] = r < rows ? from[r] : T(0);
        }
      }
    }
  }
}

// Returns a vector whose lane l is lane lane(l) of a or, if lane(l) >= W, lane lane(l) - W of b.
template <class T, class Lane, int... L>
[[gnu::always_inline]] inline Vector<T> shuffle(const Vector<T>& a, const Vector<T>& b, Lane lane,
                                                std::integer_sequence<int, L...>) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, lane(L)...);
#else  // gcc 11
  using Lanes = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  return __builtin_shuffle(a, b, Vector<Lanes>{lane(L)...});
#endif
}

// Exchanges the lanes of a whose number contains bit S with the lanes of b whose number does not.
// It takes a permutation within each vector and a blend, each of which is one instruction on every
// target.
template <class T, int S>
[[gnu::always_inline]] inline void exchange(Vector<T>& a, Vector<T>& b) {
  constexpr int W = Blocking<T>::W;
  constexpr std::make_integer_sequence<int, W> lanes;
  const Vector<T> up = shuffle<T>(b, b, [](int l) { return l ^ S; }, lanes);
  const Vector<T> down = shuffle<T>(a, a, [](int l) { return l ^ S; }, lanes);
  a = shuffle<T>(a, up, [](int l) { return l & S ? l + W : l; }, lanes);
  b = shuffle<T>(down, b, [](int l) { return l & S ? l + W : l; }, lanes);
}

// Transposes W vectors of W lanes by exchanging blocks of W/2 lanes, then of W/4, and so on to 1.
template <class T, int S = Blocking<T>::W / 2>
[[gnu::always_inline]] inline void transpose(Vector<T> (&v)[Blocking<T>::W]) {
  if constexpr (S > 0) {
#pragma GCC unroll 16
    for (Index i = 0; i < Blocking<T>::W; ++i) {
      if ((i & S) == 0) exchange<T, S>(v[i], v[i + S]);
    }
    transpose<T, S / 2>(v);
  }
}

// Packs one panel whose rows are contiguous along k. Blocks of W x W are transposed in registers. A
// store of W elements reaches into the next step of k, which is written later; the last steps are
// written element by element.
template <class T>
void pack_a_rows(const T* a, Index row_stride, Index rows, Index k, T* packed) {
  constexpr Index W = Blocking<T>::W, MR = Blocking<T>::MR, kParts = (MR + W - 1) / W;
  Index p = 0;
  for (; p + W < k; p += W) {
    Vector<T> block[kParts][W];
#pragma GCC unroll 4
    for (Index part = 0; part < kParts; ++part) {
#pragma GCC unroll 16
      for (Index r = 0; r < W; ++r) {
        const Index row = part * W + r;
        block[part][r] = row < rows ? load(a + row * row_stride + p) : Vector<T>{};
      }
      transpose<T>(block[part]);
    }
#pragma GCC unroll 16
    for (Index r = 0; r < W; ++r) {
#pragma GCC unroll 4
      for (Index part = 0; part < kParts; ++part) {
        store<T>(packed + (p + r) * MR + part * W, block[part][r]);
      }
    }
  }
  for (; p < k; ++p) {
    for (Index r = 0; r < MR; ++r) packed[p * MR + r] = r < rows ? a[r * row_stride + p] : T(0);
  }
}

// Packs an m x k block of A as panels of MR rows, each k x MR; missing rows are zeros.
template <class T>
void pack_a(const T* a, Index row_stride, Index k_stride, Index m, Index k, T* packed) {
  constexpr int MR = Blocking<T>::MR;
  if (row_stride == 1) return pack_a_across(a, k_stride, m, k, packed);
  for (Index i = 0; i < m; i += MR, packed += MR * k) {
    const T* panel = a + i * row_stride;
    const Index rows = smaller(MR, m - i);
    if (k_stride == 1) {
      pack_a_rows(panel, row_stride, rows, k, packed);
    } else {
      for (Index p = 0; p < k; ++p) {
        for (Index r = 0; r < MR; ++r) {
          packed[p * MR + r] = r < rows ? panel[r * row_stride + p * k_stride] : T(0);
        }
      }
    }
  }
}

// Packs one panel whose columns are contiguous along k. Blocks of W x W are transposed in
// registers.
template <class T>
void pack_b_across(const T* b, Index column_stride, Index k, Index columns, T* packed) {
  constexpr Index W = Blocking<T>::W, NR = Blocking<T>::NR;
  for (Index half = 0; half < NR; half += W) {
    Index p = 0;
    for (; p + W <= k; p += W) {
      Vector<T> block[W];
#pragma GCC unroll 16
      for (Index c = 0; c < W; ++c) {
        block[c] = half + c < columns ? load(b + (half + c) * column_stride + p) : Vector<T>{};
      }
      transpose<T>(block);
#pragma GCC unroll 16
      for (Index r = 0; r < W; ++r) store<T>(packed + (p + r) * NR + half, block[r]);
    }
    for (; p < k; ++p) {
      for (Index c = half; c < half + W; ++c) {
        packed[p * NR + c] = c < columns ? b[c * column_stride + p] : T(0);
      }
    }
  }
}

// Packs a k x n block of B as panels of NR columns, each k x NR; missing columns are zeros.
template <class T>
void pack_b(const T* b, Index k_stride, Index column_stride, Index k, Index n, T* packed) {
  constexpr Index NR = Blocking<T>::NR;
  for (Index j = 0; j < n; j += NR, packed += NR * k) {
    const T* panel = b + j * column_stride;
    const Index columns = smaller(NR, n - j);
    if (columns == NR && column_stride == 1) {
      for (Index p = 0; p < k; ++p)
        std::memcpy(packed + p * NR, panel + p * k_stride, NR * sizeof(T));
    } else if (k_stride == 1) {
      pack_b_across(panel, column_stride, k, columns, packed);
    } else {
      for (Index p = 0; p < k; ++p) {
        for (Index c = 0; c < NR; ++c) {
          packed[p * NR + c] = c < columns ? panel[c * column_stride + p * k_stride] : T(0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
