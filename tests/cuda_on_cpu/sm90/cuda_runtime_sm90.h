// The parts of CUDA's runtime and driver that src/cuda/sm90 uses, and an equivalent of each
// instruction: warpgroup MMA (wgmma.cc), TMA loads and mbarriers (tma.cc). Included by
// cuda_runtime.h.
#pragma once

struct CUtensorMap;

namespace cuda_on_cpu {

// wgmma.mma_async completes at the thread's wait. The moment before that at which it reads its
// operands is unspecified, like the arrival of asynchronous copies.
void wgmma_later(std::function<void()> product);
void wgmma_wait();
void fence_proxy_async();
std::uint32_t shared_address(const void* pointer);  // within the block's shared memory
int warp();                                         // of the block
// Returns the 16-bit element of a matrix that a wgmma descriptor locates in shared memory, by the
// PTX ISA, "Matrix Descriptor Format" and "Shared Memory Matrix Layout".
std::uint16_t element_of(std::uint64_t descriptor, int mn, int k, bool mn_major);

// wgmma.mma_async.sync.aligned.m64nNk16.f32, N = 8 kCount. Which accumulators a lane holds follows
// the PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16".
template <bool kMnMajorA, bool kMnMajorB, int kCount, class Value>
void wgmma(float (&sums)[kCount][4], std::uint64_t a, std::uint64_t b, Value value) {
  exchange_all(a, 0);  // .sync.aligned: the lanes of a warp synchronise
  const int laneid = lane(), row = warp() % 4 * 16 + laneid / 4;
  wgmma_later([&sums, a, b, value, laneid, row] {
    float rows[2][16];
    for (int k = 0; k < 16; ++k) {
      for (int i = 0; i < 2; ++i) rows[i][k] = value(element_of(a, row + i * 8, k, kMnMajorA));
    }
    for (int column = laneid % 4 * 2; column < kCount * 8; column += column % 2 == 0 ? 1 : 7) {
      for (int k = 0; k < 16; ++k) {
        const float y = value(element_of(b, column, k, kMnMajorB));
        for (int i = 0; i < 2; ++i) sums[column / 8][i * 2 + column % 2] += rows[i][k] * y;
      }
    }
  });
}

// An mbarrier with one arriving thread, 8 bytes of shared memory: a phase completes when the thread
// has announced the bytes it expects and these have arrived. A box arrives at once or as late as a
// thread's wait for its phase. Coordinates and offsets are innermost first.
void mbarrier_init(void* mbarrier);
void mbarrier_expect_tx(void* mbarrier, std::uint32_t bytes);
void mbarrier_wait(void* mbarrier, std::uint32_t parity);
void tma_load_tile(void* to, const CUtensorMap& map, const int (&coordinates)[4], void* mbarrier);
void tma_load_im2col(void* to, const CUtensorMap& map, const int (&coordinates)[4],
                     const int (&offsets)[2], void* mbarrier);
std::int64_t tma_loads();  // number so far

}  // namespace cuda_on_cpu

using cuuint32_t = std::uint32_t;
using cuuint64_t = std::uint64_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_64B = 2 };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };
struct alignas(64) CUtensorMap {
  const char* data;
  std::uint64_t sizes[4], strides[4];  // the strides in bytes
  std::uint16_t box[4];                // im2col: channels, pixels
  std::int16_t low[2], high[2];        // im2col: corners of the bounding box of window origins
  std::uint8_t element_strides[4];
  bool im2col;
};
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* data, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);
CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                 void* data, const cuuint64_t* sizes, const cuuint64_t* strides,
                                 const int* low, const int* high, cuuint32_t channels,
                                 cuuint32_t pixels, const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
inline constexpr unsigned long long cudaEnableDefault = 0;
#define CUDART_VERSION 13000
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result);
