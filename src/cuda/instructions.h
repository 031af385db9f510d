// PTX instructions that C++ cannot express, or cannot guarantee. They exist from sm_80 on; where
// they cannot run (sm_75, the tests' emulator) a plain equivalent follows #else. Those of sm_90
// alone are in sm90/instructions.h. The complete list, instruction and function:
//   cp.async.ca.shared.global   AsyncCopy::start
//   cp.async.commit_group       cp_async_commit
//   cp.async.wait_group         cp_async_wait
//   cvt.rna.tf32.f32            tf32
//   cvt.rn.bf16x2.f32           pack
//   cvt.rn.f16x2.f32            pack
//   ld.global.v4.f32            load_float4
//   st.shared.v2.b32            store_shared_v2
//   ldmatrix.sync.aligned.m8n8  ldmatrix
//   mma.sync.aligned.m16n8k8    mma_sync
//   mma.sync.aligned.m16n8k16   mma_sync
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "device.h"
#include "precision.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define NEEDLE_SM80 1
#else
#define NEEDLE_SM80 0
#endif

#ifndef NEEDLE_CUDA_ON_CPU  // declared for nvcc, which never calls them
namespace cuda_on_cpu {
template <bool kTranspose>
void ldmatrix(std::uint32_t (&fragment)[4], const void* row);
template <int kK, class Value>
void mma(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Value value);
}  // namespace cuda_on_cpu
#endif

namespace needle::cuda {
namespace {

// True if kernels for tensor cores have a body; on sm_75 they are never launched (precision_of).
#if NEEDLE_SM80 || defined(NEEDLE_CUDA_ON_CPU)
inline constexpr bool kTensorCores = true;
#else
inline constexpr bool kTensorCores = false;
#endif

// An asynchronous copy of one element or vector from global to shared memory, zero-filled if the
// predicate is false. A thread calls start() for each copy, then cp_async_commit(), which groups
// the copies since the last commit, later cp_async_wait(), and finally finish() for each copy.
#if NEEDLE_SM80 || defined(NEEDLE_CUDA_ON_CPU)
// The copy overlaps the arithmetic and uses no registers.
template <class T>
struct AsyncCopy {
  __device__ void start(T* to, const T* from, bool valid) {
#if NEEDLE_SM80
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from),
                 "n"(int(sizeof(T))), "r"(valid ? int(sizeof(T)) : 0)
                 : "memory");
#else
    cuda_on_cpu::cp_async(to, valid ? from : nullptr, sizeof(T));
#endif
  }
  __device__ void finish(T*) const {}
};
#endif

inline __device__ void cp_async_commit() {
#if NEEDLE_SM80
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::cp_async_commit();
#endif
}

// Waits until at most the kPending latest groups of the thread are in flight.
template <int kPending>
__device__ void cp_async_wait() {
#if NEEDLE_SM80
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::cp_async_wait(kPending);
#endif
}

// The equivalent for sm_75, and for elements of 2 bytes: the value waits in a register.
template <class T>
struct RegisterCopy {
  T value;
  __device__ void start(T*, const T* from, bool valid) { value = valid ? *from : T{}; }
  __device__ void finish(T* to) const { *to = value; }
};

#if NEEDLE_SM80 || defined(NEEDLE_CUDA_ON_CPU)
template <class T>  // cp.async copies 4, 8 or 16 bytes
using Copy = std::conditional_t<sizeof(T) < 4, RegisterCopy<T>, AsyncCopy<T>>;
#else
template <class T>
using Copy = RegisterCopy<T>;
#endif

#if !NEEDLE_SM80
inline __device__ std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline __device__ float float_of(std::uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
inline __device__ std::uint32_t bf16_of(float x) {  // rounds to nearest, ties to even
  const std::uint32_t bits = bits_of(x);
  return std::isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
// Rounds to fp16: 5 bits of exponent, 10 of mantissa; subnormal below 2^-14, infinite from 65520
// on.
inline __device__ std::uint32_t fp16_of(float x) {
  const std::uint32_t sign = bits_of(x) >> 16 & 0x8000;
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return 0x7fff;
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  const int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
  const auto mantissa = static_cast<std::uint32_t>(std::rint(std::ldexp(magnitude, 10 - exponent)));
  return sign | (std::uint32_t(exponent + 14) * 1024 + mantissa);
}
inline __device__ float fp16_value(std::uint32_t bits) {
  const int exponent = int(bits >> 10 & 31), mantissa = int(bits & 1023);
  float magnitude = std::ldexp(float(mantissa + 1024), exponent - 25);
  if (exponent == 0) magnitude = std::ldexp(float(mantissa), -24);
  if (exponent == 31) magnitude = float_of(mantissa == 0 ? 0x7f800000 : 0x7fffffff);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}
// Returns the value that an element's bits encode.
template <Precision kPrecision>
__device__ float value_of(std::uint32_t bits) {
  if constexpr (kPrecision == Precision::kTf32) return float_of(bits);
  if constexpr (kPrecision == Precision::kBf16) return float_of(bits << 16);
  return fp16_value(bits);
}
#endif

// Rounds to TF32, float32 with 10 bits of mantissa; to nearest, ties away from 0.
inline __device__ std::uint32_t tf32(float x) {
#if NEEDLE_SM80
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  return std::isfinite(x) ? (bits_of(x) + 0x1000) & ~0x1fffu : bits_of(x);
#endif
}

// Rounds two values to bf16 (fp16) and packs them into 32 bits, `low` in the lower half.
template <Precision kPrecision>
__device__ std::uint32_t pack(float low, float high) {
#if NEEDLE_SM80
  std::uint32_t packed;
  if constexpr (kPrecision == Precision::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
#else
  if constexpr (kPrecision == Precision::kBf16) return bf16_of(low) | bf16_of(high) << 16;
  return fp16_of(low) | fp16_of(high) << 16;
#endif
}

struct alignas(16) Float4 {
  float values[4];
};

// Loads 16 bytes from base + offset, zeros if the predicate is false. This is inline PTX because
// compilers put a predicated load, and all that computes its address, behind a branch.
inline __device__ Float4 load_float4(const float* base, std::int32_t offset, bool valid) {
#if NEEDLE_SM80
  Float4 x;
  asm volatile(
      "{\n"
      ".reg .pred valid;\n"
      ".reg .u64 from;\n"
      "setp.ne.s32 valid, %6, 0;\n"
      "mad.wide.s32 from, %5, 4, %4;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n"
      "@valid ld.global.v4.f32 {%0, %1, %2, %3}, [from];\n"
      "}"
      : "=&f"(x.values[0]), "=&f"(x.values[1]), "=&f"(x.values[2]), "=&f"(x.values[3])
      : "l"(base), "r"(offset), "r"(int(valid)));
  return x;
#else
  Float4 x{};
  if (valid) memcpy(&x, base + offset, sizeof x);
  return x;
#endif
}

// Stores 8 bytes to shared memory, aligned to 8.
inline __device__ void store_shared_v2(void* to, std::uint32_t first, std::uint32_t second) {
#if NEEDLE_SM80
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second)
               : "memory");
#else
  const std::uint64_t both = first | std::uint64_t(second) << 32;
  memcpy(to, &both, sizeof both);
#endif
}

// A warp loads four 8 x 8 matrices of 16-bit elements from shared memory: lane 8 m + r gives the
// address of row r of matrix m, 16 aligned bytes. fragment[m] of lane 4 g + t has elements 2t and
// 2t + 1 of row g of matrix m, or of its column g with kTranspose.
template <bool kTranspose>
__device__ void ldmatrix(std::uint32_t (&fragment)[4], const void* row) {
#if NEEDLE_SM80
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
#define NEEDLE_LDMATRIX(form)                                                               \
  asm volatile(form " {%0, %1, %2, %3}, [%4];"                                              \
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3]) \
               : "r"(address)                                                               \
               : "memory")
  if constexpr (kTranspose) {
    NEEDLE_LDMATRIX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16");
  } else {
    NEEDLE_LDMATRIX("ldmatrix.sync.aligned.m8n8.x4.shared.b16");
  }
#undef NEEDLE_LDMATRIX
#else
  cuda_on_cpu::ldmatrix<kTranspose>(fragment, row);
#endif
}

// A warp adds a (16 x K) @ b (K x 8) to its 16 x 8 accumulators. Lane 4 g + t has accumulators (g,
// 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). From a it has rows g and g + 8, and from b column
// g. In TF32 (K = 8) the registers of a are (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), those
// of b are t, t + 4. Otherwise (K = 16) a register packs two elements adjacent along K: 2t and 2t +
// 1 in place of t, 2t + 8 and 2t + 9 in place of t + 4.
template <Precision kPrecision>
__device__ void mma_sync(float (&sums)[4], const std::uint32_t (&a)[4],
                         const std::uint32_t (&b)[2]) {
#if NEEDLE_SM80
#define NEEDLE_MMA(form)                                                               \
  asm volatile(form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (kPrecision == Precision::kTf32) {
    NEEDLE_MMA("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");
  } else if constexpr (kPrecision == Precision::kBf16) {
    NEEDLE_MMA("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32");
  } else {
    NEEDLE_MMA("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32");
  }
#undef NEEDLE_MMA
#else
  cuda_on_cpu::mma<kPrecision == Precision::kTf32 ? 8 : 16>(sums, a, b, value_of<kPrecision>);
#endif
}

}  // namespace
}  // namespace needle::cuda
