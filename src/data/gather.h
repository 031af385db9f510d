// Rows of an array of any element type, selected by index: a batch of samples in memory.
#pragma once

#include <cstdint>

namespace needle::data {

inline constexpr int kMaxRowDims = 32;

// One row: shape and the strides, in bytes, of both sides.
struct RowLayout {
  int ndim;
  std::int64_t itemsize;
  std::int64_t shape[kMaxRowDims], from[kMaxRowDims], to[kMaxRowDims];
};

// Row indices[i] of source becomes row i of out; every index is a row of the source. The rows are
// distributed over the threads of the pool.
void gather_rows(const char* source, std::int64_t source_stride, const std::int64_t* indices,
                 std::int64_t count, char* out, std::int64_t out_stride, RowLayout row);

}  // namespace needle::data
