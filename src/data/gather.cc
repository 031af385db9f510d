// Adjacent axes are merged if the strides of both sides allow it, so a compact row is one memcpy;
// else the axis with the smallest stride in out is innermost.
#include "gather.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace needle::data {
namespace {

constexpr std::int64_t kBytesPerChunk = 1 << 16;
constexpr std::int64_t kBytesAlone = 1
                                     << 20;  // fewer bytes are copied without waking another thread
constexpr std::int64_t kAhead = 4;           // rows whose first cache line is prefetched

void swap_axes(RowLayout& row, int a, int b) {
  std::swap(row.shape[a], row.shape[b]);
  std::swap(row.from[a], row.from[b]);
  std::swap(row.to[a], row.to[b]);
}

void keep_axis(RowLayout& row, int to, int from) {
  row.shape[to] = row.shape[from];
  row.from[to] = row.from[from];
  row.to[to] = row.to[from];
}

// Drops axes of size 1, sorts the others by falling strides of out, and merges them where possible.
void simplify(RowLayout& row) {
  int kept = 0;
  for (int i = 0; i < row.ndim; ++i) {
    if (row.shape[i] != 1) keep_axis(row, kept++, i);
  }
  row.ndim = kept;
  for (int i = 1; i < row.ndim; ++i) {
    for (int j = i; j > 0 && std::abs(row.to[j - 1]) < std::abs(row.to[j]); --j) {
      swap_axes(row, j - 1, j);
    }
  }
  int last = 0;
  for (int i = 1; i < row.ndim; ++i) {
    const std::int64_t n = row.shape[i];
    if (row.from[last] == row.from[i] * n && row.to[last] == row.to[i] * n) {
      row.shape[i] *= row.shape[last];
      keep_axis(row, last, i);
    } else {
      keep_axis(row, ++last, i);
    }
  }
  if (row.ndim > 0) row.ndim = last + 1;
}

void copy_innermost(const RowLayout& row, const char* from, char* to) {
  const int axis = row.ndim - 1;
  const std::int64_t size = row.itemsize;
  const auto copy_each = [&](auto bytes) {  // fast if their number is a constant
    for (std::int64_t i = 0; i < row.shape[axis]; ++i) {
      std::memcpy(to + i * row.to[axis], from + i * row.from[axis], bytes);
    }
  };
  if (row.from[axis] == size && row.to[axis] == size) {
    std::memcpy(to, from, row.shape[axis] * size);
  } else if (size <= 8 && std::has_single_bit(std::uint64_t(size))) {
    with_word(size, [&]<class Word>(Tag<Word>) {
      copy_each(std::integral_constant<std::size_t, sizeof(Word)>{});
    });
  } else {
    copy_each(size);
  }
}

void copy_row(const RowLayout& row, int axis, const char* from, char* to) {
  if (row.ndim == 0) {
    std::memcpy(to, from, row.itemsize);
  } else if (axis == row.ndim - 1) {
    copy_innermost(row, from, to);
  } else {
    for (std::int64_t i = 0; i < row.shape[axis]; ++i) {
      copy_row(row, axis + 1, from + i * row.from[axis], to + i * row.to[axis]);
    }
  }
}

}  // namespace

void gather_rows(const char* source, std::int64_t source_stride, const std::int64_t* indices,
                 std::int64_t count, char* out, std::int64_t out_stride, RowLayout row) {
  std::int64_t bytes = row.itemsize;
  for (int i = 0; i < row.ndim; ++i) bytes *= row.shape[i];
  if (bytes == 0) return;
  simplify(row);
  const bool one_piece =
      row.ndim == 0 || (row.ndim == 1 && row.from[0] == row.itemsize && row.to[0] == row.itemsize);
  const bool compact = one_piece && source_stride == bytes && out_stride == bytes;
  const auto copy = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin, next; i < end; i = next) {
      next = i + 1;
      const char* from = source + indices[i] * source_stride;
      if (!one_piece) {
        copy_row(row, 0, from, out + i * out_stride);
        continue;
      }
      while (compact && next < end && indices[next] == indices[next - 1] + 1) ++next;
      if (i + kAhead < end) __builtin_prefetch(source + indices[i + kAhead] * source_stride);
      std::memcpy(out + i * out_stride, from, (next - i) * bytes);
    }
  };
  const std::int64_t together = std::max<std::int64_t>(1, kBytesPerChunk / bytes);
  parallel_for(count, count * bytes <= kBytesAlone ? count : together, copy);
}

}  // namespace needle::data
