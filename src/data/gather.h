// Gathers rows of an array of any element type by index: a batch of samples in memory.
#pragma once

#include <cstdint>

namespace needle::data {

inline constexpr int kMaxRowDims = 32;

// The layout of one row: its shape, and its strides in source and output, in bytes.
struct RowLayout {
  int ndim;
  std::int64_t itemsize;
  std::int64_t shape[kMaxRowDims], from[kMaxRowDims], to[kMaxRowDims];
};

// Copies row indices[i] of source to row i of out; every index must be a row of the source. The
// rows are distributed over the threads of the pool.
void gather_rows(const char* source, std::int64_t source_stride, const std::int64_t* indices,
                 std::int64_t count, char* out, std::int64_t out_stride, RowLayout row);

}  // namespace needle::data
