#include "tensor_map.h"

#include <algorithm>

namespace needle::cuda {
namespace {

constexpr std::uint32_t kRow = 32;  // elements of a row in shared memory

// Returns a function of the driver, which needle does not link; null if the driver is too old.
template <class Function>
Function* driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const auto status =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
#else
  const auto status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  const bool exists = status == cudaSuccess && result == cudaDriverEntryPointSuccess;
  return reinterpret_cast<Function*>(exists ? found : nullptr);
}

// The arguments of both kinds of maps. Addresses and strides must be multiples of 16 bytes.
struct TensorShape {
  cuuint64_t sizes[4], strides[3];
  bool fits;

  TensorShape(const BFloat16* data, const TensorAxis (&axes)[4])
      : fits(reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && axes[0].stride == 1) {
    std::int64_t before = sizeof(BFloat16);  // bytes of the axes so far
    for (int i = 0; i < 4; ++i) {
      const TensorAxis& axis = axes[i];
      fits = fits && axis.size > 0 && axis.size <= std::int64_t(1) << 31;
      sizes[i] = static_cast<cuuint64_t>(axis.size);
      const std::int64_t bytes = axis.size > 1 ? axis.stride * std::int64_t(sizeof(BFloat16))
                                               : ceil_div<std::int64_t>(before, 16) * 16;
      before = (i > 0 ? bytes : before) * axis.size;
      if (i == 0) continue;
      fits = fits && bytes > 0 && bytes % 16 == 0 && bytes < std::int64_t(1) << 40;
      strides[i - 1] = static_cast<cuuint64_t>(bytes);
    }
  }
};

}  // namespace

std::optional<TensorMap> tiled_map(const BFloat16* data, const TensorAxis (&axes)[4],
                                   std::uint32_t rows) {
  static auto* const encode =
      driver_function<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  const TensorShape tensor(data, axes);
  if (encode == nullptr || !tensor.fits) return {};
  const cuuint32_t box[] = {kRow, rows, 1, 1}, element_strides[] = {1, 1, 1, 1};
  TensorMap map;
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<BFloat16*>(data), tensor.sizes,
             tensor.strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? std::optional(map) : std::nullopt;
}

std::optional<TensorMap> im2col_map(const BFloat16* data, const TensorAxis (&axes)[4],
                                    const WindowAxis& across, const WindowAxis& down,
                                    std::uint32_t pixels) {
  static auto* const encode =
      driver_function<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  const TensorShape tensor(data, axes);
  if (encode == nullptr || !tensor.fits) return {};
  // The corners of the bounding box of window origins, relative to the first and the last pixel.
  int low[2], high[2];
  const WindowAxis* const windows[] = {&across, &down};
  for (int i = 0; i < 2; ++i) {
    const WindowAxis& w = *windows[i];
    const std::int64_t end = w.first + w.stride * (w.count - 1) - (axes[i + 1].size - 1);
    if (std::min(w.first, end) < -128 || std::max(w.first, end) > 127 || w.stride > 8) return {};
    low[i] = static_cast<int>(w.first), high[i] = static_cast<int>(end);
  }
  const cuuint32_t element_strides[] = {1, static_cast<cuuint32_t>(across.stride),
                                        static_cast<cuuint32_t>(down.stride), 1};
  TensorMap map;
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<BFloat16*>(data), tensor.sizes,
             tensor.strides, low, high, kRow, pixels, element_strides,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status == CUDA_SUCCESS ? std::optional(map) : std::nullopt;
}

}  // namespace needle::cuda
