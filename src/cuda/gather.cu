// The rows gather, scatter and scatter_add select whole rows (all axes but the first) by an index.
// gather is a copy with one thread per element. Scattering must keep the order of the index where
// it names a row twice. So each entry has a block, which searches the other entries for the same
// row. A block of scatter stops if a later entry names the row. A block of scatter_add stops if an
// earlier entry does; otherwise it adds the rows of all later ones, in order. There are no atomics,
// and the results equal the CPU's bit for bit. The search takes n * n comparisons, 256 at a time:
// negligible for batches of labels or words, slow for millions.
#include <algorithm>

#include "core/check.h"
#include "core/rows.h"
#include "core/scalar_math.h"
#include "kernels.h"
#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;
constexpr unsigned kMostColumnBlocks = 65535;
constexpr unsigned kBlocksPerProcessor = 16;
constexpr std::int64_t kMostEntries = 1 << 30;

// Operands of the walk: out, the table's first row broadcast over all rows, the index broadcast
// along each row.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ Walk walk, const std::int64_t row_stride) {
  /// BEGIN SOLUTION [cuda-gather]
  const std::uint32_t threads = gridDim.x * kThreads;
  for (std::uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < walk.size; i += threads) {
    const auto offsets = locate<3>(walk, i);
    const auto chosen = *reinterpret_cast<const std::int64_t*>(walk.data[2] + offsets.bytes[2]);
    *reinterpret_cast<Word*>(walk.data[0] + offsets.bytes[0]) =
        *reinterpret_cast<const Word*>(walk.data[1] + offsets.bytes[1] + chosen * row_stride);
  }
  /// END SOLUTION
}

struct Index {
  const std::int64_t* data;
  std::int64_t stride;  // in elements
  std::uint32_t count;

  __device__ std::int64_t at(std::uint32_t i) const { return data[i * stride]; }
};

// Calls f(i), in order and in all threads of the block, for the entries in [begin, end) that name
// `row`, until f returns false. `matches` is shared memory of kWarps words.
template <class F>
__device__ void each_entry(const Index& index, std::int64_t row, std::uint32_t begin,
                           std::uint32_t end, unsigned* matches, F&& f) {
  for (std::uint32_t tile = begin; tile < end; tile += kThreads) {
    const std::uint32_t mine = tile + threadIdx.x;
    const unsigned found = __ballot_sync(kAllLanes, mine < end && index.at(mine) == row);
    if (threadIdx.x % kWarp == 0) matches[threadIdx.x / kWarp] = found;
    __syncthreads();
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      for (unsigned left = matches[warp]; left != 0; left &= left - 1) {
        if (!f(tile + warp * kWarp + unsigned(__ffs(int(left))) - 1)) return;
      }
    }
    __syncthreads();
  }
}

__device__ bool names(const Index& index, std::int64_t row, std::uint32_t begin, std::uint32_t end,
                      unsigned* matches) {
  bool found = false;
  each_entry(index, row, begin, end, matches, [&](std::uint32_t) {
    found = true;
    return false;
  });
  __syncthreads();  // all threads have read the matches
  return found;
}

// blockIdx.x is the entry of the index, and blockIdx.y selects columns. The operands of the walk
// are a row of out and a row of a.
template <class T, bool kAdds>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const __grid_constant__ Walk walk, const Index index,
                   const std::int64_t out_stride, const std::int64_t a_stride) {
  NEEDLE_SHARED(matches, unsigned[kWarps]);
  const std::uint32_t entry = blockIdx.x;
  const std::int64_t row = index.at(entry);
  const std::uint32_t begin = kAdds ? 0 : entry + 1, end = kAdds ? entry : index.count;
  if (names(index, row, begin, end, matches)) return;
  for (std::uint32_t first = blockIdx.y * kThreads; first < walk.size;
       first += gridDim.y * kThreads) {
    const std::uint32_t column = first + threadIdx.x;
    const bool mine = column < walk.size;
    const auto offsets = locate<2>(walk, mine ? column : 0);
    auto* to = reinterpret_cast<T*>(walk.data[0] + offsets.bytes[0] + row * out_stride);
    const auto from = [&](std::uint32_t i) {
      return *reinterpret_cast<const T*>(walk.data[1] + offsets.bytes[1] + i * a_stride);
    };
    if constexpr (kAdds) {
      Computed<T> sum = mine ? Computed<T>(*to) : Computed<T>();
      each_entry(index, row, entry, index.count, matches, [&](std::uint32_t i) {
        if constexpr (std::is_same_v<T, bool>) {
          sum = sum || from(i);
        } else {
          sum = math::add(sum, Computed<T>(from(i)));
        }
        return true;
      });
      if (mine) *to = T(sum);
    } else {
      if (mine) *to = from(entry);
    }
  }
}

template <class T, bool kAdds>
void scatter_rows(const char* op, In a, In index, Out out) {
  check_rows(op, a, out, index);
  const auto item = std::int64_t(size_of(a.dtype));
  const std::int64_t n = index.shape[0];
  NEEDLE_CHECK(n <= kMostEntries, "scatter: the index must have at most 2**30 entries on a GPU");
  const View to = row_of(out), from = row_of(a);
  const View* views[] = {&to, &from};
  if (n == 0) return;
  const Index entries{data_of<const std::int64_t>(index), index.strides[0],
                      static_cast<std::uint32_t>(n)};
  in_parts(make_plan(to, from), [&](const LoopPlan& part) {
    if (part.size == 0) return;
    const Walk walk = make_walk(part, views);
    const unsigned columns = std::min(ceil_div<unsigned>(walk.size, kThreads), kMostColumnBlocks);
    launch(op, out.device, {entries.count, columns}, {kThreads}, scatter_kernel<T, kAdds>, walk,
           entries, out.strides[0] * item, a.strides[0] * item);
  });
}

}  // namespace

void gather(In a, In index, Out out) {
  check_rows("gather", out, a, index);
  View table = a, along = out;
  table.shape[0] = index.shape[0];
  table.strides[0] = 0;
  along.data = index.data;
  along.dtype = index.dtype;
  std::fill_n(along.strides, along.ndim, 0);
  along.strides[0] = index.strides[0];
  const View* views[] = {&out, &table, &along};
  const std::int64_t row_stride = a.strides[0] * std::int64_t(size_of(a.dtype));
  in_parts(make_plan(out, table, along), [&](const LoopPlan& part) {
    if (part.size == 0) return;
    const Walk walk = make_walk(part, views);
    const unsigned blocks = std::min(ceil_div<unsigned>(walk.size, kThreads),
                                     kBlocksPerProcessor * unsigned(processors(out.device)));
    with_word(size_of(a.dtype), [&]<class Word>(Tag<Word>) {
      launch("gather", out.device, {blocks}, {kThreads}, gather_kernel<Word>, walk, row_stride);
    });
  });
}

void scatter(In a, In index, Out out) {
  with_word(size_of(a.dtype),
            [&]<class T>(Tag<T>) { scatter_rows<T, false>("scatter", a, index, out); });
}

void scatter_add(In a, In index, Out out) {
  with_stored_type(a.dtype,
                   [&]<class T>(Tag<T>) { scatter_rows<T, true>("scatter_add", a, index, out); });
}

}  // namespace needle::cuda
