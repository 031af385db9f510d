// The kernel rows fill and copy are elementwise kernels too; equal dtypes are copied as words. A
// copy whose input and output are contiguous along different dimensions goes through tiles in
// shared memory, so that loads and stores both coalesce.
#include "core/scalar_math.h"
#include "core/view_rules.h"
#include "kernels.h"
#include "map.h"

namespace needle::cuda {
namespace {

template <class To, class From>
struct Convert {
  static constexpr bool kLong = false;
  static __device__ To apply(Computed<From> x) { return To(math::convert<Computed<To>>(x)); }
};

// ---- transposed layouts: a block moves one tile of kTile x kTile words ----

constexpr unsigned kTile = 32, kTileRows = 8;  // rows per iteration of a block

struct Transposition {
  Walk outer;                          // the plan without the two dimensions of the tile
  std::uint32_t rows, columns;         // of the output; its columns are contiguous
  std::int64_t out_stride, in_stride;  // bytes: to the output's next row, the input's next column
  Divisor tiles_across, tiles_down;
};

// The column of padding avoids bank conflicts.
template <class Word>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(const __grid_constant__ Transposition t) {
  NEEDLE_SHARED(tile, Word[kTile][kTile + 1]);
  const std::uint32_t below = t.tiles_across.quotient(blockIdx.x);
  const std::uint32_t column = (blockIdx.x - below * t.tiles_across.divisor) * kTile;
  const std::uint32_t outer = t.tiles_down.quotient(below);
  const std::uint32_t row = (below - outer * t.tiles_down.divisor) * kTile;
  const auto offsets = locate<2>(t.outer, outer);
  const char* from = t.outer.data[1] + offsets.bytes[1];
  char* to = t.outer.data[0] + offsets.bytes[0];
  /// BEGIN SOLUTION [cuda-transpose]
  for (unsigned j = threadIdx.y; j < kTile; j += kTileRows) {
    if (row + threadIdx.x < t.rows && column + j < t.columns) {
      tile[j][threadIdx.x] =
          reinterpret_cast<const Word*>(from + (column + j) * t.in_stride)[row + threadIdx.x];
    }
  }
  __syncthreads();
  for (unsigned i = threadIdx.y; i < kTile; i += kTileRows) {
    if (row + i < t.rows && column + threadIdx.x < t.columns) {
      reinterpret_cast<Word*>(to + (row + i) * t.out_stride)[column + threadIdx.x] =
          tile[threadIdx.x][i];
    }
  }
  /// END SOLUTION
}

template <class Word>
void copy_transposed(const LoopPlan& plan, int dim, const View* const* views) {
  const int last = plan.ndim - 1;
  LoopPlan outer = plan;
  outer.ndim = std::max(1, last - 1);
  outer.shape[0] = 1;
  outer.size = plan.size / plan.shape[dim] / plan.shape[last];
  for (int i = 0, axis = 0; i < last; ++i) {
    if (i == dim) continue;
    outer.shape[axis] = plan.shape[i];
    for (int k = 0; k < 2; ++k) outer.strides[k][axis] = plan.strides[k][i];
    ++axis;
  }
  Transposition t;
  t.outer = make_walk(outer, views);
  t.rows = static_cast<std::uint32_t>(plan.shape[dim]);
  t.columns = static_cast<std::uint32_t>(plan.shape[last]);
  t.out_stride = plan.strides[0][dim];
  t.in_stride = plan.strides[1][last];
  const std::uint32_t across = ceil_div(t.columns, kTile), down = ceil_div(t.rows, kTile);
  t.tiles_across = Divisor(across);
  t.tiles_down = Divisor(down);
  launch("copy", views[0]->device, {across * down * t.outer.size}, {kTile, kTileRows},
         transpose_kernel<Word>, t);
}

template <class Word>
void copy_words(const LoopPlan& plan, const View* const* views) {
  if (const int dim = transposed_dim(plan, sizeof(Word)); dim >= 0) {
    in_parts(plan, [&](const LoopPlan& part) { copy_transposed<Word>(part, dim, views); });
  } else {
    map<Convert<Word, Word>, Word, Word>("copy", plan, views);
  }
}

}  // namespace

void fill(Out out, double value, std::int64_t integer) {
  with_stored_type(out.dtype, [&]<class T>(Tag<T>) {
    using V = Computed<T>;
    V filled;
    if constexpr (std::is_floating_point_v<V>) {
      filled = static_cast<V>(value);
    } else {
      filled = math::convert<V>(integer);
    }
    View one = out;
    one.data = &filled;
    one.is_scalar = true;
    std::fill_n(one.strides, one.ndim, 0);
    const View* views[] = {&out, &one};
    map<Convert<T, T>, T, T>("fill", make_plan(out, one), views);
  });
}

void copy(In a, Out out) {
  check_same_shape("copy", a, out);
  const LoopPlan plan = make_plan(out, a);
  const View* views[] = {&out, &a};
  if (plan.size == 0) return;
  if (a.dtype == out.dtype) {
    return with_word(size_of(a.dtype), [&]<class T>(Tag<T>) { copy_words<T>(plan, views); });
  }
  with_stored_type(a.dtype, [&]<class From>(Tag<From>) {
    with_stored_type(out.dtype, [&]<class To>(Tag<To>) {
      if constexpr (!std::is_same_v<From, To>)
        map<Convert<To, From>, To, From>("copy", plan, views);
    });
  });
}

}  // namespace needle::cuda
