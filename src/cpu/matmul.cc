// matmul: out (..., m, n) = a (..., m, k) @ b (..., k, n), any strides.
//
// Large products follow BLIS: k is cut into slices of KC; of each slice a part of A and of B is
// packed once, in parallel, into panels that the micro-kernel of gemm.h reads front to back; tasks
// are blocks of MC x NC of the result. Any transposition ends in packing. Small and thin products
// read their operands in place, and a single column is a row of dot products. How the work is cut
// depends on the shape alone, so the result does not depend on the number of threads.
#include "core/scratch.h"
#include "core/thread_pool.h"
#include "gemm.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

template <class T>
struct Matrix {
  T* data;
  Index rows, columns, row_stride, column_stride;

  T* at(Index i, Index j) const { return data + i * row_stride + j * column_stride; }
  Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
};

constexpr Index kSmallWork = 32 * 32 * 32;  // multiply-adds that do not repay packing
constexpr Index kTaskWork = 1 << 16;        // multiply-adds worth handing to a thread

template <class T>
void set_zero(const Matrix<T>& c) {
  for (Index i = 0; i < c.rows; ++i) {
    for (Index j = 0; j < c.columns; ++j) *c.at(i, j) = T(0);
  }
}

// ---- packed ------------------------------------------------------------------------------------

// How much of A and of B is packed at a time: bounds the scratch at a few MiB.
template <class T>
struct Slice {
  static constexpr Index rows = 16 * Blocking<T>::MC;
  static constexpr Index columns = 16 * Blocking<T>::NC;
};

// c += or = a @ b for operands of at most Slice rows and columns and KC along k.
template <class T>
void multiply_slice(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c,
                    bool add, T* packed_a, T* packed_b) {
  using B = Blocking<T>;
  const Index k = a.columns, m_blocks = ceil_div(a.rows, B::MC),
              n_blocks = ceil_div(b.columns, B::NC);
  parallel_for(m_blocks + n_blocks, 1, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      if (task < m_blocks) {
        const Index i = task * B::MC;
        pack_a(a.at(i, 0), a.row_stride, a.column_stride, smaller(B::MC, a.rows - i), k,
               packed_a + i * k);
      } else {
        const Index j = (task - m_blocks) * B::NC;
        pack_b(b.at(0, j), b.row_stride, b.column_stride, k, smaller(B::NC, b.columns - j),
               packed_b + j * k);
      }
    }
  });
  parallel_for(m_blocks * n_blocks, 1, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index i = task % m_blocks * B::MC, j = task / m_blocks * B::NC;
      packed_block<T>(smaller(B::MC, a.rows - i), smaller(B::NC, b.columns - j), k,
                      packed_a + i * k, packed_b + j * k, c.at(i, j), c.row_stride, c.column_stride,
                      add);
    }
  });
}

template <class T>
void multiply_packed(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  using B = Blocking<T>;
  const Index rows = smaller(c.rows, Slice<T>::rows),
              columns = smaller(c.columns, Slice<T>::columns);
  const Index depth = smaller(a.columns, B::KC);
  const Scratch scratch_a(static_cast<std::size_t>(round_up(rows, B::MR) * depth) * sizeof(T));
  const Scratch scratch_b(static_cast<std::size_t>(round_up(columns, B::NR) * depth) * sizeof(T));
  for (Index j = 0; j < c.columns; j += columns) {
    const Index n = smaller(columns, c.columns - j);
    for (Index i = 0; i < c.rows; i += rows) {
      const Index m = smaller(rows, c.rows - i);
      for (Index p = 0; p < a.columns; p += depth) {
        const Index k = smaller(depth, a.columns - p);
        multiply_slice<T>({a.at(i, p), m, k, a.row_stride, a.column_stride},
                          {b.at(p, j), k, n, b.row_stride, b.column_stride},
                          {c.at(i, j), m, n, c.row_stride, c.column_stride}, p > 0,
                          scratch_a.as<T>(), scratch_b.as<T>());
      }
    }
  }
}

// ---- in place ----------------------------------------------------------------------------------

// A tile of `R` or fewer rows from row i; the pointers of missing rows repeat the last one.
template <class T, int R>
void rows_of(const Matrix<const T>& a, Index i, const T* b, Index b_stride, TileOut<T> out) {
  const T* rows[R];
  for (int r = 0; r < R; ++r) rows[r] = a.at(i + smaller(r, out.rows - 1), 0);
  rows_tile<T, R>(1, a.columns, rows, a.column_stride, b, b_stride, out);
}

// Columns [j, j + NR) of c, from a panel of b whose rows are `b_stride` apart.
template <class T>
void multiply_panel(const Matrix<const T>& a, const T* b, Index b_stride, const Matrix<T>& c,
                    Index j) {
  constexpr int MR = Blocking<T>::MR;
  const Index columns = smaller(Blocking<T>::NR, c.columns - j);
  for (Index i = 0; i < c.rows; i += MR) {
    const Index rows = smaller(MR, c.rows - i);
    const TileOut<T> out{c.at(i, j), c.row_stride, c.column_stride, rows, columns, false};
    if (rows == 1) {
      rows_of<T, 1>(a, i, b, b_stride, out);
    } else if (rows == 2) {
      rows_of<T, 2>(a, i, b, b_stride, out);
    } else if (rows <= 4) {
      rows_of<T, 4>(a, i, b, b_stride, out);
    } else {
      rows_of<T, MR>(a, i, b, b_stride, out);
    }
  }
}

// b's columns lie next to each other; only a last, narrow panel is copied.
template <class T>
void multiply_in_place(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  constexpr Index NR = Blocking<T>::NR;
  const Index panel_work = c.rows * a.columns * NR;
  parallel_for(ceil_div(c.columns, NR), ceil_div(kTaskWork, panel_work),
               [&](Index begin, Index end) {
                 for (Index panel = begin; panel < end; ++panel) {
                   const Index j = panel * NR;
                   if (j + NR <= c.columns) {
                     multiply_panel<T>(a, b.at(0, j), b.row_stride, c, j);
                   } else {
                     const Scratch narrow(static_cast<std::size_t>(NR * b.rows) * sizeof(T));
                     pack_b(b.at(0, j), b.row_stride, 1, b.rows, c.columns - j, narrow.as<T>());
                     multiply_panel<T>(a, narrow.as<T>(), NR, c, j);
                   }
                 }
               });
}

template <class T>
T dot(const T* a, const T* b, Index n) {
  constexpr Index W = Blocking<T>::W, kLanes = 4;
  Vector<T> acc[kLanes] = {};
  Index i = 0;
  for (; i + kLanes * W <= n; i += kLanes * W) {
#pragma GCC unroll 4
    for (Index lane = 0; lane < kLanes; ++lane) {
      acc[lane] += load(a + i + lane * W) * load(b + i + lane * W);
    }
  }
  const Vector<T> total = (acc[0] + acc[1]) + (acc[2] + acc[3]);
  T sum = T(0);
  for (Index lane = 0; lane < W; ++lane) sum += total[lane];
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// One column, both operands next to each other along k: nothing is read twice.
template <class T>
void multiply_vector(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  parallel_for(c.rows, ceil_div(kTaskWork, a.columns), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) *c.at(i, 0) = dot<T>(a.at(i, 0), b.data, a.columns);
  });
}

// ---- choice ------------------------------------------------------------------------------------

template <class T>
void multiply(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  if (a.columns == 0) return set_zero(c);
  if (c.columns == 1 && c.rows > 1 && a.column_stride == 1 && b.row_stride == 1) {
    return multiply_vector(a, b, c);
  }
  if (c.rows == 1 && b.row_stride == 1 && a.column_stride == 1 && b.column_stride != 1) {
    return multiply_vector(b.transposed(), a.transposed(), c.transposed());
  }
  // A result written along its columns is the transposed product written along its rows.
  if (c.column_stride != 1 && c.row_stride == 1) {
    return multiply(b.transposed(), a.transposed(),
                    Matrix<T>{c.data, c.columns, c.rows, c.column_stride, 1});
  }
  const bool small = c.rows * c.columns * a.columns <= kSmallWork || c.rows <= 2;
  if (small && (b.column_stride == 1 || c.columns == 1)) return multiply_in_place(a, b, c);
  multiply_packed(a, b, c);
}

template <class T>
Matrix<T> matrix_of(const View& v, T* data) {
  const int i = v.ndim - 2, j = v.ndim - 1;
  return {data, v.shape[i], v.shape[j], v.strides[i], v.strides[j]};
}

// The offset of matrix number `index` of a batch, in elements.
Index batch_offset(const View& v, Index index) {
  Index offset = 0;
  for (int axis = v.ndim - 3; axis >= 0; --axis) {
    offset += index % v.shape[axis] * v.strides[axis];
    index /= v.shape[axis];
  }
  return offset;
}

template <class T>
void matmul_typed(const View& a, const View& b, const View& out) {
  Index batch = 1;
  for (int axis = 0; axis < out.ndim - 2; ++axis) batch *= out.shape[axis];
  const Index work =
      out.shape[out.ndim - 2] * out.shape[out.ndim - 1] * larger(1, a.shape[a.ndim - 1]);
  if (batch == 0 || work == 0) return;
  // Products large enough for the pool by themselves come one after the other.
  const Index grain = work > 64 * kTaskWork ? batch : ceil_div(kTaskWork, work);
  parallel_for(batch, grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      multiply<T>(matrix_of<const T>(a, data_of<const T>(a) + batch_offset(a, i)),
                  matrix_of<const T>(b, data_of<const T>(b) + batch_offset(b, i)),
                  matrix_of<T>(out, data_of<T>(out) + batch_offset(out, i)));
    }
  });
}

}  // namespace

// Integers are multiplied as unsigned ones: the same bits, and overflow wraps.
void matmul(In a, In b, Out out) {
  switch (out.dtype) {
    case DType::kFloat32: return matmul_typed<float>(a, b, out);
    case DType::kFloat64: return matmul_typed<double>(a, b, out);
    case DType::kInt32: return matmul_typed<std::uint32_t>(a, b, out);
    default: return matmul_typed<std::uint64_t>(a, b, out);
  }
}

}  // namespace needle::cpu::NEEDLE_ISA
