// one_hot: each thread writes one element, 1 in the column of the row's index. Any dtype and
// strides are supported; an index out of bounds gives a row of zeros.
#include <algorithm>

#include "kernels.h"
#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kThreads = 256;

struct Rows {
  const std::int64_t* index;
  std::int64_t index_stride, row_stride, column_stride;  // in elements
  std::uint32_t size;                                    // elements of all rows
  Divisor columns;
};

template <class T>
__global__ void __launch_bounds__(kThreads) one_hot_kernel(const Rows rows, T* out) {
  /// BEGIN SOLUTION [cuda-one-hot]
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= rows.size) return;
  const std::uint32_t row = rows.columns.quotient(i), column = i - row * rows.columns.divisor;
  out[row * rows.row_stride + column * rows.column_stride] =
      T(rows.index[row * rows.index_stride] == std::int64_t(column));
  /// END SOLUTION
}

}  // namespace

void one_hot(In index, Out out) {
  const std::int64_t columns = out.shape[1];
  if (columns == 0) return;
  const std::int64_t together = std::max<std::int64_t>(1, kPart / columns);
  for (std::int64_t first = 0; first < out.shape[0]; first += together) {
    const std::int64_t count = std::min(together, out.shape[0] - first);
    const Rows rows{data_of<const std::int64_t>(index) + first * index.strides[0],
                    index.strides[0],
                    out.strides[0],
                    out.strides[1],
                    static_cast<std::uint32_t>(count * columns),
                    Divisor(columns)};
    with_stored_type(out.dtype, [&]<class T>(Tag<T>) {
      launch("one_hot", out.device, {ceil_div(rows.size, kThreads)}, {kThreads}, one_hot_kernel<T>,
             rows, data_of<T>(out) + first * out.strides[0]);
    });
  }
}

}  // namespace needle::cuda
