// PTX instructions of sm_90a alone, each with the emulator's equivalent: warpgroup MMA (wgmma), TMA
// loads and the mbarriers that count their bytes. On other targets they do nothing and are never
// called. The complete list, instruction and function:
//   fence.proxy.async           fence_proxy_async
//   wgmma.fence.sync.aligned    wgmma_fence
//   wgmma.mma_async.sync        wgmma
//   wgmma.commit_group.sync     wgmma_commit
//   wgmma.wait_group.sync       wgmma_wait
//   mbarrier.init.shared        mbarrier_init
//   mbarrier.arrive.expect_tx   mbarrier_expect_tx
//   mbarrier.try_wait.parity    mbarrier_wait
//   cp.async.bulk.tensor.4d     tma_load_tile
#pragma once

#include "../instructions.h"
#include "tensor_map.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define NEEDLE_SM90A 1
#else
#define NEEDLE_SM90A 0
#endif

namespace needle::cuda {
namespace {

// True if kernels with these instructions have a body.
#if NEEDLE_SM90A || defined(NEEDLE_CUDA_ON_CPU)
inline constexpr bool kWarpgroups = true;
#else
inline constexpr bool kWarpgroups = false;
#endif

#if NEEDLE_SM90A
inline __device__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}
#endif

// ---- wgmma: four warps multiply matrices in shared memory, asynchronously ----

// Makes the thread's stores to shared memory visible to the async proxy, which wgmma and TMA use,
// after the next barrier.
inline __device__ void fence_proxy_async() {
#if NEEDLE_SM90A
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::fence_proxy_async();
#endif
}

// Returns 0 from inline PTX: the compiler could move a plain initialisation of accumulators to a
// point where wgmma is already in flight.
inline __device__ float opaque_zero() {
  float zero = 0;
#if NEEDLE_SM90A
  asm volatile("mov.b32 %0, 0;" : "=f"(zero));
#endif
  return zero;
}

// Required before a wgmma whose accumulators other instructions have accessed.
inline __device__ void wgmma_fence() {
#if NEEDLE_SM90A
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

inline __device__ void wgmma_commit() {
#if NEEDLE_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits for all committed groups. Before it, accumulators must not be accessed, nor operands
// overwritten.
inline __device__ void wgmma_wait() {
#if NEEDLE_SM90A
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::wgmma_wait();
#endif
}

// Returns the descriptor of a matrix of 16-bit elements in shared memory with 64-byte swizzling. A
// core matrix has 8 rows of 64 bytes and begins at a multiple of 512 bytes; bits 1 and 2 of the row
// are XORed into the index of the 16-byte chunk. `stride` is the offset in bytes from one core
// matrix to the next across rows, and `leading` that to the next along rows, of MN-major operands.
inline __device__ std::uint64_t matrix_descriptor(const void* first, std::uint32_t leading,
                                                  std::uint32_t stride) {
#if NEEDLE_SM90A
  const std::uint32_t address = shared_address(first);
#elif defined(NEEDLE_CUDA_ON_CPU)
  const std::uint32_t address = cuda_on_cpu::shared_address(first);
#else
  const std::uint32_t address = 0;
#endif
  constexpr std::uint64_t kSwizzle64B = 2;
  return (address & 0x3ffff) >> 4 | std::uint64_t(leading >> 4) << 16 |
         std::uint64_t(stride >> 4) << 32 | kSwizzle64B << 62;
}

// A warpgroup begins to add a (64 x 16) @ b (16 x 8 kCount) to its accumulators. Warp w has rows 16
// w to 16 w + 15. Of every 8 columns, a lane has the accumulators that mma_sync gives it. Each
// operand is MN-major or K-major.
template <Precision kPrecision, bool kMnMajorA, bool kMnMajorB, int kCount>
__device__ void wgmma(float (&sums)[kCount][4], std::uint64_t a, std::uint64_t b) {
#if NEEDLE_SM90A
  static_assert(kCount == 8 || kCount == 16);
#define NEEDLE_SUMS_4(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
#define NEEDLE_SUMS_16(j) \
  NEEDLE_SUMS_4(j), NEEDLE_SUMS_4(j + 1), NEEDLE_SUMS_4(j + 2), NEEDLE_SUMS_4(j + 3)
#define NEEDLE_SUMS_32(j) NEEDLE_SUMS_16(j), NEEDLE_SUMS_16(j + 4)
#define NEEDLE_0_TO_31                                     \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NEEDLE_32_TO_63                                              \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
// The predicate p is scale-d: the product is added to the accumulators.
#define NEEDLE_WGMMA(form, registers, operands, ...)                                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" form " {" registers "}, " operands \
               ";\n}"                                                                        \
               : __VA_ARGS__                                                                 \
               : "l"(a), "l"(b), "n"(int(kMnMajorA)), "n"(int(kMnMajorB)))
#define NEEDLE_WGMMA_TYPE(type)                                                      \
  if constexpr (kCount == 8) {                                                       \
    NEEDLE_WGMMA("wgmma.mma_async.sync.aligned.m64n64k16.f32." type, NEEDLE_0_TO_31, \
                 "%32, %33, p, 1, 1, %34, %35", NEEDLE_SUMS_32(0));                  \
  } else {                                                                           \
    NEEDLE_WGMMA("wgmma.mma_async.sync.aligned.m64n128k16.f32." type,                \
                 NEEDLE_0_TO_31 "," NEEDLE_32_TO_63, "%64, %65, p, 1, 1, %66, %67",  \
                 NEEDLE_SUMS_32(0), NEEDLE_SUMS_32(8));                              \
  }
  if constexpr (kPrecision == Precision::kBf16) {
    NEEDLE_WGMMA_TYPE("bf16.bf16")
  } else {
    NEEDLE_WGMMA_TYPE("f16.f16")
  }
#undef NEEDLE_WGMMA_TYPE
#undef NEEDLE_WGMMA
#undef NEEDLE_32_TO_63
#undef NEEDLE_0_TO_31
#undef NEEDLE_SUMS_32
#undef NEEDLE_SUMS_16
#undef NEEDLE_SUMS_4
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::wgmma<kMnMajorA, kMnMajorB>(sums, a, b, value_of<kPrecision>);
#endif
}

// ---- TMA: one thread asks for a box of a tensor; an mbarrier counts the bytes that arrive ----

// An mbarrier in shared memory. One thread completes its phases, and any thread may wait for them.
struct Mbarrier {
  std::uint64_t state;
};

// To be called by one thread, before fence_proxy_async and a barrier.
inline __device__ void mbarrier_init(Mbarrier& mbarrier) {
#if NEEDLE_SM90A
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&mbarrier))
               : "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::mbarrier_init(&mbarrier);
#endif
}

// The current phase completes when this many bytes have arrived.
inline __device__ void mbarrier_expect_tx(Mbarrier& mbarrier, std::uint32_t bytes) {
#if NEEDLE_SM90A
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&mbarrier)),
      "r"(bytes)
      : "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::mbarrier_expect_tx(&mbarrier, bytes);
#endif
}

// Waits until the phase with this parity completes; phases count from 0. This is the only loop in
// src/cuda that waits for an outside event: it hangs if the bytes never arrive.
inline __device__ void mbarrier_wait(Mbarrier& mbarrier, std::uint32_t parity) {
#if NEEDLE_SM90A
  unsigned complete = 0;
  while (complete == 0) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}"
        : "=r"(complete)
        : "r"(shared_address(&mbarrier)), "r"(parity)
        : "memory");
  }
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::mbarrier_wait(&mbarrier, parity);
#endif
}

#define NEEDLE_TMA_LOAD(form, box, ...)                                                    \
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global." form                      \
               ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2]" box      \
               ";" ::"r"(shared_address(to)),                                              \
               "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(shared_address(&mbarrier)), \
               "r"(coordinates[0]), "r"(coordinates[1]), "r"(coordinates[2]),              \
               "r"(coordinates[3])__VA_OPT__(, ) __VA_ARGS__                               \
               : "memory")

// Loads the box of a tensor (tiled_map) that begins at these coordinates, innermost first.
inline __device__ void tma_load_tile(void* to, const TensorMap& map, const int (&coordinates)[4],
                                     Mbarrier& mbarrier) {
#if NEEDLE_SM90A
  NEEDLE_TMA_LOAD("tile", "");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::tma_load_tile(to, map, coordinates, &mbarrier);
#endif
}

// Loads one tap of consecutive windows (im2col_map). The first window begins at these coordinates
// (C, W, H, N); the tap lies `offsets` (W, H) from the beginning of its window.
inline __device__ void tma_load_im2col(void* to, const TensorMap& map, const int (&coordinates)[4],
                                       const int (&offsets)[2], Mbarrier& mbarrier) {
#if NEEDLE_SM90A
  NEEDLE_TMA_LOAD("im2col", ", {%7, %8}", "h"(static_cast<std::uint16_t>(offsets[0])),
                  "h"(static_cast<std::uint16_t>(offsets[1])));
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::tma_load_im2col(to, map, coordinates, offsets, &mbarrier);
#endif
}
#undef NEEDLE_TMA_LOAD

}  // namespace
}  // namespace needle::cuda
