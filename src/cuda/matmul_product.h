// The operands and the result of matmul in memory. The kernels of matmul.cu and sm90/matmul_tma.h
// share them.
#pragma once

#include "gemm.h"
#include "walk.h"

namespace needle::cuda {
namespace {

template <class T>
struct Matrix {
  using MnCoord = const T*;
  using KCoord = std::int64_t;
  const T* data;
  std::uint32_t size;                // along M (of A) or N (of B)
  std::int64_t mn_stride, k_stride;  // in elements

  // For an out-of-bounds index, reads the first row; its results are not stored.
  __device__ MnCoord mn_coord(std::uint32_t mn) const {
    return data + (mn < size ? mn : 0) * mn_stride;
  }
  __device__ KCoord k_coord(std::uint32_t k) const { return k * k_stride; }
  __device__ bool in_bounds(MnCoord, KCoord) const { return true; }
  __device__ const T* base(MnCoord row, KCoord) const { return row; }
  __device__ KCoord offset(MnCoord, KCoord k) const { return k; }
  __device__ bool k_major() const { return k_stride == 1; }
};

template <class T>
struct MatrixResult {
  using Row = ResultRow<T>;
  using Column = ResultColumn;
  T* data;
  std::uint32_t rows, columns;
  std::int64_t row_stride, column_stride;

  __device__ Row row(std::uint32_t n) const { return {data + n * row_stride, n < rows}; }
  __device__ Column column(std::uint32_t n) const { return {n * column_stride, n < columns}; }
  __device__ void put(const Row& row, const Column& column, Computed<T> value) const {
    row.data[column.offset] = T(value);
  }
};

struct Product {
  Walk batch;  // operand 0: out, 1: a, 2: b
  std::uint32_t m, n, k;
  std::int64_t a_m, a_k, b_k, b_n, out_m, out_n;  // strides, in elements
  std::uint32_t slices, slice;                    // split-K: `slices` slices of `slice` elements
  std::int64_t slice_stride;  // bytes from the result of one slice to that of the next
  Divisor tiles_across;
};

}  // namespace
}  // namespace needle::cuda
