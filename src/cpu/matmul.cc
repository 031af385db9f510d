// matmul: out (..., m, n) = a (..., m, k) @ b (..., k, n), any strides.
//
// Large products follow BLIS. k is cut into slices, and all threads pack slices of B into panels,
// which the micro-kernel of gemm.h reads sequentially. Then each task multiplies a block of rows by
// a block of packed columns; gemm_blocks.h computes their sizes from the caches. A task packs its
// rows too, a few tiles at a time, unless they are contiguous and do not evict one another from L1.
// Packing handles every transposition. Small and thin products read their operands in place, and a
// product with one column is a row of dot products. Products with small m and n are split along k,
// by the shape alone. The split of rows and columns does not change a result, so it may depend on
// the number of threads.
#include "core/scratch.h"
#include "core/thread_pool.h"
#include "gemm_blocks.h"
#include "gemm_pack.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

template <class T>
struct Matrix {
  T* data;
  Index rows, columns, row_stride, column_stride;

  T* at(Index i, Index j) const { return data + i * row_stride + j * column_stride; }
  Matrix transposed() const { return {data, columns, rows, column_stride, row_stride}; }
  // Returns m x n elements from (i, j) on.
  Matrix part(Index i, Index j, Index m, Index n) const {
    return {at(i, j), m, n, row_stride, column_stride};
  }
};

constexpr Index kSmallWork = 1 << 21;     // up to this many multiply-adds, packing B does not pay
constexpr Index kSmallBytes = 1 << 17;    // up to this many bytes, an unpacked B stays in L2
constexpr Index kTaskWork = 1 << 18;      // multiply-adds worth handing to a thread
constexpr Index kTaskElements = 1 << 15;  // elements to pack worth handing to a thread

template <class T>
void set_zero(const Matrix<T>& c) {
  for (Index i = 0; i < c.rows; ++i) {
    for (Index j = 0; j < c.columns; ++j) *c.at(i, j) = T(0);
  }
}

// ---- packed ------------------------------------------------------------------------------------

// The part of B that is packed at a time. It has `slices` slices of k, each of `depth` rows (the
// last may be shorter), as panels of `columns` columns. The scratch has at most kPacked elements.
template <class T>
struct PackedB {
  static constexpr Index kPacked = (Index{4} << 20) / Index{sizeof(T)};
  static constexpr Index kColumns = 1024;
  // Deeper slices pass over c less often, which gains more than keeping a panel of each operand in
  // L1; with 64-byte vectors a panel has twice the columns. The depth decides the order of the
  // additions, so it must not depend on the machine.
  static constexpr Index kDepth =
      simd::kVectorBytes > 32 ? Blocking<T>::KC : Blocking<T>::KC * 3 / 2;
  Index depth, slices, columns;

  PackedB(Index k, Index n)
      : depth(ceil_div(k, ceil_div(k, kDepth))),
        columns(round_up(smaller(n, kColumns), Blocking<T>::NR)) {
    slices = larger(1, smaller(ceil_div(k, depth), kPacked / (depth * columns)));
  }
  Index k() const { return depth * slices; }
  Index size() const { return k() * columns; }
};

// The panels of NR columns of a block of B: `first` points to the first one, `step` is the distance
// to the next one, `stride` the distance between their rows.
template <class T>
struct Panels {
  const T* first;
  Index step, stride;
};

// Computes c = a @ b, or c += a @ b if `add` is true, for the c.rows rows of one tile. `packed` has
// them as a panel; if it is null, they are read in place.
template <class T>
void multiply_rows(const Matrix<const T>& a, const T* packed, const Panels<T>& b,
                   const Matrix<T>& c, bool add) {
  constexpr Index NR = Blocking<T>::NR;
  const T* panel = b.first;
  for (Index j = 0; j < c.columns; j += NR, panel += b.step) {
    const TileOut<T> out{
        c.at(0, j), c.row_stride, c.column_stride, c.rows, smaller(NR, c.columns - j), add};
    with_tile<T>(out.rows, out.columns, [&]<int R, int V>() {
      if (packed) return packed_tile<T, R, V>(a.columns, packed, panel, b.stride, out);
      const T* rows[R];  // rows beyond the last repeat it
      for (Index r = 0; r < R; ++r) rows[r] = a.at(smaller(r, c.rows - 1), 0);
      rows_tile<T, R, V>(One{}, a.columns, rows, a.column_stride, panel, b.stride, out);
    });
  }
}

constexpr Index kPackedTiles = 4;  // tiles packed together: rows along a column share cache lines

// Does the same for any number of rows. `room` holds kPackedTiles panels of k x MR elements; if it
// is null, the rows are read in place.
template <class T>
void multiply_panels(const Matrix<const T>& a, const Panels<T>& b, const Matrix<T>& c, bool add,
                     T* room = nullptr) {
  constexpr Index MR = Blocking<T>::MR;
  for (Index i = 0; i < c.rows; i += MR) {
    const Index m = smaller(MR, c.rows - i), place = i % (kPackedTiles * MR);
    if (room && place == 0) {
      const Index rows = smaller(kPackedTiles * MR, c.rows - i);
      pack_a(a.at(i, 0), a.row_stride, a.column_stride, rows, a.columns, room);
    }
    const T* const packed = room ? room + place * a.columns : nullptr;
    multiply_rows<T>(a.part(i, 0, m, a.columns), packed, b, c.part(i, 0, m, c.columns), add);
  }
}

// Performs one task: multiplies a by the columns of b from `first` on, over all packed slices. The
// product is added to c if `add` is true.
template <class T>
void multiply_block(const Matrix<const T>& a, const T* b, Index first, const PackedB<T>& cut,
                    const Matrix<T>& c, bool add) {
  constexpr Index MR = Blocking<T>::MR, NR = Blocking<T>::NR;
  const bool in_place =
      a.column_stride == 1 && fit_first_level(MR, a.row_stride * Index{sizeof(T)});
  const ThreadScratch room(
      in_place ? 0 : static_cast<std::size_t>(kPackedTiles * MR * cut.depth) * sizeof(T));
  for (Index p = 0; p < a.columns; p += cut.depth, add = true) {
    const Index k = smaller(cut.depth, a.columns - p);
    multiply_panels<T>(a.part(0, p, a.rows, k), {b + p * cut.columns + first * k, k * NR, NR}, c,
                       add, in_place ? nullptr : room.as<T>());
  }
}

// Packs b (at most cut.k() x cut.columns), slice by slice, panel by panel.
template <class T>
void pack_slices(const Matrix<const T>& b, const PackedB<T>& cut, T* packed) {
  constexpr Index NR = Blocking<T>::NR;
  const Index panels = ceil_div(b.columns, NR);
  const auto pack = [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index p = task / panels * cut.depth, j = task % panels * NR;
      const Index k = smaller(cut.depth, b.rows - p);
      pack_b(b.at(p, j), b.row_stride, b.column_stride, k, smaller(NR, b.columns - j),
             packed + p * cut.columns + j * k);
    }
  };
  parallel_for(panels * ceil_div(b.rows, cut.depth), ceil_div(kTaskElements, cut.depth * NR), pack);
}

// Computes c = a @ b, or c += a @ b if `add` is true. All of b is packed at once.
template <class T>
void multiply_slices(const Matrix<const T>& a, const Matrix<const T>& b, const PackedB<T>& cut,
                     const Matrix<T>& c, bool add, T* packed) {
  pack_slices<T>(b, cut, packed);
  const Blocks blocks = blocks_of<T>(c.rows, c.columns, cut.depth);
  const auto row = [&](Index block) {
    return begin_of_part(block, blocks.rows, c.rows, Blocking<T>::MR);
  };
  const auto column = [&](Index block) {
    return begin_of_part(block, blocks.columns, c.columns, Blocking<T>::NR);
  };
  const auto multiply = [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index down = task % blocks.rows, across = task / blocks.rows;
      const Index i = row(down), j = column(across);
      const Index m = row(down + 1) - i, n = column(across + 1) - j;
      multiply_block<T>(a.part(i, 0, m, a.columns), packed, j, cut, c.part(i, j, m, n), add);
    }
  };
  const Index tasks = blocks.rows * blocks.columns;
  parallel_for(tasks, ceil_div(kTaskWork * tasks, c.rows * c.columns * a.columns), multiply);
}

template <class T>
void multiply_packed(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  const PackedB<T> cut(a.columns, c.columns);
  const ThreadScratch packed(static_cast<std::size_t>(cut.size()) * sizeof(T));
  for (Index j = 0; j < c.columns; j += cut.columns) {
    const Index n = smaller(cut.columns, c.columns - j);
    for (Index p = 0; p < a.columns; p += cut.k()) {
      const Index k = smaller(cut.k(), a.columns - p);
      multiply_slices<T>(a.part(0, p, c.rows, k), b.part(p, j, k, n), cut, c.part(0, j, c.rows, n),
                         p > 0, packed.as<T>());
    }
  }
}

// ---- long sums ---------------------------------------------------------------------------------

constexpr Index kLongElements = 1 << 16;  // elements of a result that fits a part of L2
constexpr Index kLongRange = 2048;        // products of a sum that are worth a task
constexpr Index kLongTasks = 16;          // at most this many ranges of k
constexpr Index kLongDepth = kPartial + kPartial / 2;  // of a slice of k: one partial sum

// Returns true if m and n are small and k is long, as for the gradient of a weight over a batch of
// pixels.
template <class T>
bool has_long_sums(const Matrix<const T>& a, const Matrix<T>& c) {
  return c.rows * c.columns <= kLongElements && a.columns >= 4 * kLongRange &&
         a.columns >= 8 * larger(c.rows, c.columns);
}

// Returns how many rows of A the tiles read in place; none unless rows are adjacent in memory. A
// tile must not pass the last row, so the last rows are packed if no tile height fits them.
template <class T>
Index rows_in_place(const Matrix<const T>& a) {
  const Index left = a.rows % Blocking<T>::MR;
  const bool exact = left == 8 || left == 4 || left <= 2;
  return a.row_stride != 1 ? 0 : exact ? a.rows : a.rows - left;
}

// Computes c = a @ b, or c += a @ b if `add` is true, for a slice of k. b is packed; rows of A are
// packed into `room` if necessary.
template <class T>
void multiply_slice(const Matrix<const T>& a, const T* b, const Matrix<T>& c, bool add, T* room) {
  constexpr Index MR = Blocking<T>::MR, NR = Blocking<T>::NR;
  const Index k = a.columns, in_place = rows_in_place(a);
  pack_a(a.at(in_place, 0), a.row_stride, a.column_stride, c.rows - in_place, k, room);
  for (Index j = 0; j < c.columns; j += NR) {
    for (Index i = 0; i < c.rows; i += MR) {
      const TileOut<T> out{
          c.at(i, j), c.row_stride, 1, smaller(MR, c.rows - i), smaller(NR, c.columns - j), add};
      with_tile<T>(out.rows, out.columns, [&]<int R, int V>() {
        if (i < in_place) {
          packed_tile<T, R, V>(k, a.at(i, 0), b + j * k, NR, out, a.column_stride);
        } else {
          packed_tile<T, R, V>(k, room + (i - in_place) * k, b + j * k, NR, out);
        }
      });
    }
  }
}

// Computes c = a @ b in one task, which reads both operands once, slice by slice of k.
template <class T>
void multiply_range(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  constexpr Index MR = Blocking<T>::MR, NR = Blocking<T>::NR;
  const Index rows =
      round_up(ceil_div(c.rows, ceil_div(c.rows, second_level_columns<T>(kLongDepth))), MR);
  const Index columns = round_up(c.columns, NR);
  const ThreadScratch memory(static_cast<std::size_t>((rows + columns) * kLongDepth) * sizeof(T));
  T *const right = memory.as<T>(), *const left = right + columns * kLongDepth;
  for (Index p = 0; p < a.columns; p += kLongDepth) {
    const Index k = smaller(kLongDepth, a.columns - p);
    pack_b(b.at(p, 0), b.row_stride, b.column_stride, k, b.columns, right);
    for (Index i = 0; i < c.rows; i += rows) {
      const Index m = smaller(rows, c.rows - i);
      multiply_slice<T>(a.part(i, p, m, k), right, c.part(i, 0, m, c.columns), p > 0, left);
    }
  }
}

// Computes c = a @ b with k cut into ranges, whose results are added in order.
template <class T>
void multiply_ranges(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  const Index most = smaller(kLongTasks, a.columns / kLongRange), size = c.rows * c.columns;
  const Index range = round_up(ceil_div(a.columns, most), kLongDepth);
  const Index ranges = ceil_div(a.columns, range);
  const ThreadScratch memory(static_cast<std::size_t>(ranges * size) * sizeof(T));
  T* const sums = memory.as<T>();
  parallel_for(ranges, 1, [&](Index first, Index last) {
    for (Index r = first; r < last; ++r) {
      const Index p = r * range, k = smaller(range, a.columns - p);
      multiply_range<T>(a.part(0, p, a.rows, k), b.part(p, 0, k, b.columns),
                        {sums + r * size, c.rows, c.columns, c.columns, 1});
    }
  });
  parallel_for(c.rows, ceil_div(kTaskElements, ranges * c.columns), [&](Index first, Index last) {
    for (Index i = first; i < last; ++i) {
      T* const row = sums + i * c.columns;
      for (Index r = 1; r < ranges; ++r) {
        for (Index j = 0; j < c.columns; ++j) row[j] += row[r * size + j];
      }
      for (Index j = 0; j < c.columns; ++j) *c.at(i, j) = row[j];
    }
  });
}

// ---- in place ----------------------------------------------------------------------------------

// Computes c = a @ b in place. Rows of b must be contiguous; only a last, narrow panel is copied.
template <class T>
void multiply_in_place(const Matrix<const T>& a, const Matrix<const T>& b, const Matrix<T>& c) {
  constexpr Index NR = Blocking<T>::NR;
  const Index panel_work = c.rows * a.columns * NR;
  parallel_for(ceil_div(c.columns, NR), ceil_div(kTaskWork, panel_work),
               [&](Index begin, Index end) {
                 for (Index panel = begin; panel < end; ++panel) {
                   const Index j = panel * NR;
                   const Index n = smaller(NR, c.columns - j);
                   const Matrix<T> part = c.part(0, j, c.rows, n);
                   if (n == NR) {
                     multiply_panels<T>(a, {b.at(0, j), NR, b.row_stride}, part, false);
                   } else {
                     const ThreadScratch narrow(static_cast<std::size_t>(NR * b.rows) * sizeof(T));
                     pack_b(b.at(0, j), b.row_stride, 1, b.rows, n, narrow.as<T>());
                     multiply_panels<T>(a, {narrow.as<T>(), NR, NR}, part, false);
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

// Computes a product with one column. Both operands must be contiguous along k.
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
  // A result that is contiguous along its columns is computed as the transposed product.
  if (c.column_stride != 1 && c.row_stride == 1) {
    return multiply(b.transposed(), a.transposed(),
                    Matrix<T>{c.data, c.columns, c.rows, c.column_stride, 1});
  }
  const bool few = a.columns * c.columns * Index{sizeof(T)} <= kSmallBytes;
  const bool small = c.rows <= 2 || (few && c.rows * c.columns * a.columns <= kSmallWork);
  if (small && (b.column_stride == 1 || c.columns == 1)) return multiply_in_place(a, b, c);
  if (has_long_sums(a, c)) return multiply_ranges(a, b, c);
  multiply_packed(a, b, c);
}

template <class T>
Matrix<T> matrix_of(const View& v, T* data) {
  const int i = v.ndim - 2, j = v.ndim - 1;
  return {data, v.shape[i], v.shape[j], v.strides[i], v.strides[j]};
}

// Returns the offset of matrix number `index` of a batch, in elements.
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
  // Products that are large enough to use all threads are computed one after the other.
  const Index grain = work > 16 * kTaskWork ? batch : ceil_div(kTaskWork, work);
  parallel_for(batch, grain, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      multiply<T>(matrix_of<const T>(a, data_of<const T>(a) + batch_offset(a, i)),
                  matrix_of<const T>(b, data_of<const T>(b) + batch_offset(b, i)),
                  matrix_of<T>(out, data_of<T>(out) + batch_offset(out, i)));
    }
  });
}

}  // namespace

// Integers are multiplied as unsigned: the bits are the same, and overflow wraps.
void matmul(In a, In b, Out out) {
  switch (out.dtype) {
    case DType::kFloat32: return matmul_typed<float>(a, b, out);
    case DType::kFloat64: return matmul_typed<double>(a, b, out);
    case DType::kInt32: return matmul_typed<std::uint32_t>(a, b, out);
    default: return matmul_typed<std::uint64_t>(a, b, out);
  }
}

}  // namespace needle::cpu::NEEDLE_ISA
