// The row matmul: batches of strided matrices through the tiles of gemm.h. Integers multiply as
// unsigned, so that they wrap; float32 stays float32 throughout unless config asks for less.
#include "allocator.h"
#include "bulk_tile.h"
#include "core/view_rules.h"
#include "kernels.h"
#include "walk.h"

namespace needle::cuda {
namespace {

// A matrix in memory: `lines` of `depth` elements.
template <class T>
struct Matrix {
  using Line = const T*;
  using Depth = std::int64_t;
  const T* data;
  std::uint32_t lines;
  std::int64_t line_stride, depth_stride;  // in elements

  // One beyond the last stands for the first: its results are not stored.
  __device__ Line line(std::uint32_t n) const { return data + (n < lines ? n : 0) * line_stride; }
  __device__ Depth depth(std::uint32_t k) const { return k * depth_stride; }
  __device__ bool has(Line, Depth) const { return true; }
  __device__ const T* base(Line line, Depth) const { return line; }
  __device__ Depth offset(Line, Depth depth) const { return depth; }
  __device__ bool deep() const { return depth_stride == 1; }
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
  std::int64_t a_row, a_depth, b_depth, b_column, out_row, out_column;  // strides, in elements
  std::uint32_t parts, part;  // k is cut into `parts` pieces of `part` elements
  std::int64_t part_stride;   // bytes from the result of one part to that of the next
  Divisor tiles_across;
};

// blockIdx.x: tile of the result; y: part of k; z: batch.
template <class T, class R, class Tile, By kA, By kB>
__global__ void __launch_bounds__(Tile::kThreads, kA == By::kElements || Tile::kRounded
                                                      ? kBlocksOf<T, Tile, kA>
                                                      : 2)
    matmul_kernel(const __grid_constant__ Product p) {
  const auto at = locate<3>(p.batch, blockIdx.z);
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  const Matrix<T> a{reinterpret_cast<const T*>(p.batch.data[1] + at.of[1]), p.m, p.a_row,
                    p.a_depth};
  const Matrix<T> b{reinterpret_cast<const T*>(p.batch.data[2] + at.of[2]), p.n, p.b_column,
                    p.b_depth};
  const MatrixResult<R> out{
      reinterpret_cast<R*>(p.batch.data[0] + at.of[0] + blockIdx.y * p.part_stride), p.m, p.n,
      p.out_row, p.out_column};
  const std::uint32_t begin = blockIdx.y * p.part, end = std::min(begin + p.part, p.k);
  tile_product<T, Tile, kA, kB>(a, b, down * Tile::kTileM, across * Tile::kTileN, begin, end, out);
}

// The same by bulk copies, of one batch.
template <class R, class Tile, By kA, By kB>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    matmul_bulk_kernel(const __grid_constant__ Product p, const __grid_constant__ TensorMap map_a,
                       const __grid_constant__ TensorMap map_b) {
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  const MatrixResult<R> out{reinterpret_cast<R*>(p.batch.data[0] + blockIdx.y * p.part_stride), p.m,
                            p.n, p.out_row, p.out_column};
  const std::uint32_t begin = blockIdx.y * p.part, end = std::min(begin + p.part, p.k);
  bulk_product<Tile>(BulkMatrix<kA>{map_a}, BulkMatrix<kB>{map_b}, down * Tile::kTileM,
                     across * Tile::kTileN, begin, end, out);
}

template <By kBy>
std::optional<TensorMap> matrix_map(const char* data, std::uint32_t lines, std::int64_t line_stride,
                                    std::uint32_t depths, std::int64_t depth_stride, int tile) {
  const Axis line{lines, line_stride}, depth{depths, depth_stride};
  const auto* const first = reinterpret_cast<const BFloat16*>(data);
  if constexpr (kBy == By::kDepths) return box_map(first, {depth, line, {}, {}}, tile);
  return box_map(first, {line, depth, {}, {}}, 32);
}

// Returns false if bulk copies cannot bring the operands.
template <class R, class Tile, By kA, By kB>
bool launch_bulk(Product& p, int device) {
  if (p.batch.size != 1) return false;
  use(device);
  const auto a = matrix_map<kA>(p.batch.data[1], p.m, p.a_row, p.k, p.a_depth, Tile::kTileM);
  const auto b = matrix_map<kB>(p.batch.data[2], p.n, p.b_column, p.k, p.b_depth, Tile::kTileN);
  if (!a || !b) return false;
  const std::uint32_t across = ceil_div<std::uint32_t>(p.n, Tile::kTileN);
  p.tiles_across = Divisor(across);
  launch_with_shared(
      "matmul", device, {across * ceil_div<std::uint32_t>(p.m, Tile::kTileM), p.parts},
      {Tile::kThreads}, sizeof(BulkMemory<Tile>), matmul_bulk_kernel<R, Tile, kA, kB>, p, *a, *b);
  return true;
}

template <class T, class R, class Tile, By kA, By kB>
void launch_by(Product& p, int device) {
  if constexpr (kTakesBulk<T, Tile>) {
    if (launch_bulk<R, Tile, kA, kB>(p, device)) return;
  }
  const std::uint32_t across = ceil_div<std::uint32_t>(p.n, Tile::kTileN);
  p.tiles_across = Divisor(across);
  launch("matmul", device,
         {across * ceil_div<std::uint32_t>(p.m, Tile::kTileM), p.parts, p.batch.size},
         {Tile::kThreads}, matmul_kernel<T, R, Tile, kA, kB>, p);
}

// How an operand's matrices, `which` of the batch, lie in memory: by aligned words of lines or
// depths.
template <class T>
By words_of(const Product& p, int which, std::uint32_t lines, std::int64_t line_stride,
            std::int64_t depth_stride) {
  auto places = reinterpret_cast<std::uintptr_t>(p.batch.data[which]);
  for (int i = 0; i < p.batch.ndim; ++i) {
    places |= static_cast<std::uintptr_t>(p.batch.strides[which][i]);
  }
  const auto words = [&](std::int64_t stride, std::uint32_t count) {
    return places % 16 == 0 && stride % kWord<T> == 0 && count % kWord<T> == 0 &&
           p.k * std::abs(depth_stride) < std::int64_t(1) << 31;  // load_four
  };
  if (line_stride == 1 && words(depth_stride, lines)) return By::kLines;
  return depth_stride == 1 && words(line_stride, p.k | p.part) ? By::kDepths : By::kElements;
}

template <class T, class R, class Tile>
void launch_tiles(Product& p, int device) {
  if constexpr (Tile::kTensorCores && (Tile::kThreads == 256 || Tile::OfWords::kRounded)) {
    const By a = words_of<T>(p, 1, p.m, p.a_row, p.a_depth);
    const By b = words_of<T>(p, 2, p.n, p.b_column, p.b_depth);
    constexpr By kLines = By::kLines, kDepths = By::kDepths;
    if ((a == kDepths && b != By::kElements) || (a == kLines && b == kLines)) {
      return with_words<Tile>(device, [&](auto words) {
        using Words = typename decltype(words)::type;
        if (a == kLines) return launch_by<T, R, Words, kLines, kLines>(p, device);
        if (b == kLines) return launch_by<T, R, Words, kDepths, kLines>(p, device);
        launch_by<T, R, Words, kDepths, kDepths>(p, device);
      });
    }
  }
  launch_by<T, R, Tile, By::kElements, By::kElements>(p, device);
}

// The views less their last two axes.
View batch_of(const View& v) {
  View batch = v;
  batch.ndim -= 2;
  return batch;
}

constexpr std::int64_t kMostBatches = 32768;  // of one launch

// R: the type of the result; parts of k have float32 results.
template <class T, class R>
void product(In a, In b, Out out, std::int64_t parts, std::int64_t part_stride) {
  const View views[] = {batch_of(out), batch_of(a), batch_of(b)};
  const View* const pointers[] = {&views[0], &views[1], &views[2]};
  const int i = out.ndim - 2, j = out.ndim - 1;
  Product p{};
  p.m = static_cast<std::uint32_t>(out.shape[i]);
  p.n = static_cast<std::uint32_t>(out.shape[j]);
  p.k = static_cast<std::uint32_t>(a.shape[j]);
  p.a_row = a.strides[i], p.a_depth = a.strides[j];
  p.b_depth = b.strides[i], p.b_column = b.strides[j];
  p.out_row = out.strides[i], p.out_column = out.strides[j];
  p.parts = static_cast<std::uint32_t>(parts);
  p.part = part_of_k(p.k, p.parts);
  p.part_stride = part_stride;
  in_parts<kMostBatches>(make_plan(views[0], views[1], views[2]), [&](const LoopPlan& batch) {
    p.batch = make_walk(batch, pointers);
    with_precision<T>(out.device, [&](auto precision) {
      using Large = LargeTile<decltype(precision)::value>;
      const std::int64_t tiles = ceil_div<std::int64_t>(p.m, Large::kTileM) *
                                 ceil_div<std::int64_t>(p.n, Large::kTileN) * batch.size * parts;
      if constexpr (sizeof(T) <=
                    4) {  // the sums of a large tile of 8-byte elements do not fit the registers
        if (tiles >= processors(out.device)) return launch_tiles<T, R, Large>(p, out.device);
      }
      launch_tiles<T, R, SmallTile<decltype(precision)::value>>(p, out.device);
    });
  });
}

// The parts of k one after another in memory, then their sum.
template <class T>
void product_in_parts(In a, In b, Out out, std::int64_t parts) {
  const std::int64_t bytes = size_of(out) * std::int64_t(sizeof(Computed<T>));
  const Temporary memory(static_cast<std::size_t>(parts * bytes), out.device);
  View partial = out;
  partial.data = memory.as<void>();
  partial.dtype = computed(out.dtype);
  std::int64_t stride = 1;
  for (int i = out.ndim - 1; i >= 0; stride *= out.shape[i--]) partial.strides[i] = stride;
  product<T, Computed<T>>(a, b, partial, parts, bytes);
  View all = partial, sum = out;
  all.ndim = sum.ndim = out.ndim + 1;
  for (int i = out.ndim; i > 0; --i) {
    all.shape[i] = sum.shape[i] = out.shape[i - 1];
    all.strides[i] = partial.strides[i - 1], sum.strides[i] = out.strides[i - 1];
  }
  all.shape[0] = parts, sum.shape[0] = 1;
  all.strides[0] = stride, sum.strides[0] = 0;
  reduce(ReduceOp::sum, all, sum);
}

template <class T>
void matmul_typed(In a, In b, Out out) {
  const int i = out.ndim - 2, j = out.ndim - 1;
  const std::int64_t m = out.shape[i], n = out.shape[j], k = a.shape[j];
  const std::int64_t parts = parts_of_k(m, n, k, size_of(out) / (m * n));
  if (parts > 1 && out.ndim < kMaxDims) return product_in_parts<T>(a, b, out, parts);
  product<T, T>(a, b, out, 1, 0);
}

}  // namespace

void matmul(In a, In b, Out out) {
  if (size_of(out) == 0) return;
  if (a.shape[a.ndim - 1] == 0) return fill(out, 0.0, 0);
  switch (out.dtype) {
    case DType::kInt32: return matmul_typed<std::uint32_t>(a, b, out);
    case DType::kInt64: return matmul_typed<std::uint64_t>(a, b, out);
    case DType::kBFloat16: return matmul_typed<BFloat16>(a, b, out);
    case DType::kFloat32: return matmul_typed<float>(a, b, out);
    default: return matmul_typed<double>(a, b, out);
  }
}

}  // namespace needle::cuda
