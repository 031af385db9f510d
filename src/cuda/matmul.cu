// The kernel row matmul multiplies batches of strided matrices, with the tiles of gemm.h. Integers
// are multiplied as unsigned, so that they wrap. float32 stays float32 unless config chooses less.
#include "allocator.h"
#include "core/view_rules.h"
#include "kernels.h"
#include "matmul_product.h"
#include "sm90/matmul_tma.h"
#include "split_k.h"

namespace needle::cuda {
namespace {

// blockIdx.x: tile of the result; y: slice of K; z: batch.
template <class T, class R, class Tile, Load kA, Load kB>
__global__ void __launch_bounds__(Tile::kThreads, kA == Load::kScalar || Tile::kSwizzled
                                                      ? kMinBlocksOf<T, Tile, kA>
                                                      : 2)
    matmul_kernel(const __grid_constant__ Product p) {
  const auto offsets = locate<3>(p.batch, blockIdx.z);
  const std::uint32_t down = p.tiles_across.quotient(blockIdx.x);
  const std::uint32_t across = blockIdx.x - down * p.tiles_across.divisor;
  const Matrix<T> a{reinterpret_cast<const T*>(p.batch.data[1] + offsets.bytes[1]), p.m, p.a_m,
                    p.a_k};
  const Matrix<T> b{reinterpret_cast<const T*>(p.batch.data[2] + offsets.bytes[2]), p.n, p.b_n,
                    p.b_k};
  const MatrixResult<R> out{
      reinterpret_cast<R*>(p.batch.data[0] + offsets.bytes[0] + blockIdx.y * p.slice_stride), p.m,
      p.n, p.out_m, p.out_n};
  const std::uint32_t begin = blockIdx.y * p.slice, end = std::min(begin + p.slice, p.k);
  tile_product<T, Tile, kA, kB>(a, b, down * Tile::kTileM, across * Tile::kTileN, begin, end, out);
}

template <class T, class R, class Tile, Load kA, Load kB>
void launch_kernel(Product& p, int device) {
  if constexpr (kUsesTma<T, Tile>) {
    if (launch_tma<R, Tile, kA, kB>(p, device)) return;
  }
  const std::uint32_t across = ceil_div<std::uint32_t>(p.n, Tile::kTileN);
  p.tiles_across = Divisor(across);
  launch("matmul", device,
         {across * ceil_div<std::uint32_t>(p.m, Tile::kTileM), p.slices, p.batch.size},
         {Tile::kThreads}, matmul_kernel<T, R, Tile, kA, kB>, p);
}

// Returns how operand 1 or 2 can be loaded: as aligned vectors along MN or K, or by single
// elements.
template <class T>
Load load_of(const Product& p, int operand, std::uint32_t size, std::int64_t mn_stride,
             std::int64_t k_stride) {
  auto bits = reinterpret_cast<std::uintptr_t>(p.batch.data[operand]);
  for (int i = 0; i < p.batch.ndim; ++i) {
    bits |= static_cast<std::uintptr_t>(p.batch.strides[operand][i]);
  }
  const auto vectorizable = [&](std::int64_t stride, std::uint32_t count) {
    return bits % 16 == 0 && stride % kVectorElements<T> == 0 && count % kVectorElements<T> == 0 &&
           p.k * std::abs(k_stride) < std::int64_t(1) << 31;  // load_float4 takes 32 bits
  };
  if (mn_stride == 1 && vectorizable(k_stride, size)) return Load::kMnMajor;
  return k_stride == 1 && vectorizable(mn_stride, p.k | p.slice) ? Load::kKMajor : Load::kScalar;
}

template <class T, class R, class Tile>
void launch_tiles(Product& p, int device) {
  if constexpr (Tile::kTensorCores && (Tile::kThreads == 256 || Tile::VectorTile::kSwizzled)) {
    const Load a = load_of<T>(p, 1, p.m, p.a_m, p.a_k);
    const Load b = load_of<T>(p, 2, p.n, p.b_n, p.b_k);
    constexpr Load kMnMajor = Load::kMnMajor, kKMajor = Load::kKMajor;
    if ((a == kKMajor && b != Load::kScalar) || (a == kMnMajor && b == kMnMajor)) {
      return with_vector_tile<Tile>(device, [&](auto tile) {
        using Vectorized = typename decltype(tile)::type;
        if (a == kMnMajor) return launch_kernel<T, R, Vectorized, kMnMajor, kMnMajor>(p, device);
        if (b == kMnMajor) return launch_kernel<T, R, Vectorized, kKMajor, kMnMajor>(p, device);
        launch_kernel<T, R, Vectorized, kKMajor, kKMajor>(p, device);
      });
    }
  }
  launch_kernel<T, R, Tile, Load::kScalar, Load::kScalar>(p, device);
}

// Returns the view without its last two axes.
View batch_of(const View& v) {
  View batch = v;
  batch.ndim -= 2;
  return batch;
}

constexpr std::int64_t kMaxBatches = 32768;  // of one launch

// R is the type of the result; slices of K have float32 results.
template <class T, class R>
void product(In a, In b, Out out, std::int64_t slices, std::int64_t slice_stride) {
  const View views[] = {batch_of(out), batch_of(a), batch_of(b)};
  const View* const pointers[] = {&views[0], &views[1], &views[2]};
  const int i = out.ndim - 2, j = out.ndim - 1;
  Product p{};
  p.m = static_cast<std::uint32_t>(out.shape[i]);
  p.n = static_cast<std::uint32_t>(out.shape[j]);
  p.k = static_cast<std::uint32_t>(a.shape[j]);
  p.a_m = a.strides[i], p.a_k = a.strides[j];
  p.b_k = b.strides[i], p.b_n = b.strides[j];
  p.out_m = out.strides[i], p.out_n = out.strides[j];
  p.slices = static_cast<std::uint32_t>(slices);
  p.slice = k_per_slice(p.k, p.slices);
  p.slice_stride = slice_stride;
  in_parts<kMaxBatches>(make_plan(views[0], views[1], views[2]), [&](const LoopPlan& batch) {
    p.batch = make_walk(batch, pointers);
    with_precision<T>(out.device, [&](auto precision) {
      using Large = LargeTile<decltype(precision)::value>;
      const std::int64_t tiles = ceil_div<std::int64_t>(p.m, Large::kTileM) *
                                 ceil_div<std::int64_t>(p.n, Large::kTileN) * batch.size * slices;
      // The accumulators of a large tile of 8-byte elements do not fit the registers.
      if constexpr (sizeof(T) <= 4) {
        if (tiles >= processors(out.device)) return launch_tiles<T, R, Large>(p, out.device);
      }
      launch_tiles<T, R, SmallTile<decltype(precision)::value>>(p, out.device);
    });
  });
}

template <class T>
void split_k_product(In a, In b, Out out, std::int64_t slices) {
  const std::int64_t bytes = size_of(out) * std::int64_t(sizeof(Computed<T>));
  const Temporary memory(static_cast<std::size_t>(slices * bytes), out.device);
  const View all = slices_like(out, slices, memory.as<void>());
  View first = all;
  first.ndim = out.ndim;
  std::copy_n(all.shape + 1, out.ndim, first.shape);
  std::copy_n(all.strides + 1, out.ndim, first.strides);
  product<T, Computed<T>>(a, b, first, slices, bytes);
  sum_slices(all, out);
}

template <class T>
void matmul_typed(In a, In b, Out out) {
  const int i = out.ndim - 2, j = out.ndim - 1;
  const std::int64_t m = out.shape[i], n = out.shape[j], k = a.shape[j];
  const std::int64_t slices = split_k_slices(m, n, k, size_of(out) / (m * n));
  if (slices > 1 && out.ndim < kMaxDims) return split_k_product<T>(a, b, out, slices);
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
