// Instructions of GPUs that C++ cannot express, or not with certainty; most of them exist from
// sm_80 on, those of warpgroups on sm_90a alone. Where they cannot run (sm_75, the tests' emulator)
// a plain equivalent follows #else. The complete list, instruction and place:
//   cp.async.ca.shared.global   AsyncCopy::start
//   cp.async.commit_group       commit_copies
//   cp.async.wait_group         wait_for_copies
//   cvt.rna.tf32.f32            tf32
//   cvt.rn.bf16x2.f32           pair
//   cvt.rn.f16x2.f32            pair
//   ld.global.v4.f32            load_four
//   st.shared.v2.b32            store_two
//   ldmatrix.sync.aligned.m8n8  load_matrices
//   mma.sync.aligned.m16n8k8    multiply_add
//   mma.sync.aligned.m16n8k16   multiply_add
//   fence.proxy.async           show_to_warpgroups
//   wgmma.fence.sync.aligned    begin_products
//   wgmma.mma_async.sync        multiply_add_matrices
//   wgmma.commit_group.sync     end_products
//   wgmma.wait_group.sync       wait_for_products
//   mbarrier.init.shared        begin_arrivals
//   mbarrier.arrive.expect_tx   expect_bytes
//   mbarrier.try_wait.parity    wait_for_bytes
//   cp.async.bulk.tensor.4d     copy_box
// tests/cuda_on_cpu/test_instructions.py compares this list with the code and with the PTX.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "device.h"
#include "precision.h"
#include "tensor_map.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define NEEDLE_SM80 1
#else
#define NEEDLE_SM80 0
#endif

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define NEEDLE_SM90A 1
#else
#define NEEDLE_SM90A 0
#endif

#ifndef NEEDLE_CUDA_ON_CPU  // the emulator's twins; where there is none they are not called
namespace cuda_on_cpu {
template <bool kTurned>
void ldmatrix(std::uint32_t (&words)[4], const void* row);
template <int kK, class Value>
void mma(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Value value);
template <bool kTurnedA, bool kTurnedB, int kCount, class Value>
void wgmma(float (&sums)[kCount][4], std::uint64_t a, std::uint64_t b, Value value);
std::uint32_t shared_address(const void* at);
void fence_proxy();
void wait_for_products();
void begin_arrivals(void* arrival);
void expect_bytes(void* arrival, std::uint32_t bytes);
void wait_for_bytes(void* arrival, std::uint32_t parity);
void copy_box(void* to, const CUtensorMap& map, const int (&at)[4], void* arrival);
void copy_windows(void* to, const CUtensorMap& map, const int (&at)[4], const int (&tap)[2],
                  void* arrival);
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

#if NEEDLE_SM90A || defined(NEEDLE_CUDA_ON_CPU)
inline constexpr bool kWarpgroups = true;
#else
inline constexpr bool kWarpgroups = false;
#endif

// An asynchronous copy of an element from global to shared memory, 0 where there is none: start();
// commit_copies() makes a group of those started since the last one; later wait_for_copies(), then
// finish() each.
#if NEEDLE_SM80 || defined(NEEDLE_CUDA_ON_CPU)
// The copy runs beside the arithmetic and uses no register. The emulator lets it arrive early or
// late, as a GPU may.
template <class T>
struct AsyncCopy {
  // `from` is read if there `is` one: of 0 bytes cp.async reads none and fills up with zeros.
  __device__ void start(T* to, const T* from, bool is) {
#if NEEDLE_SM80
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from),
                 "n"(int(sizeof(T))), "r"(is ? int(sizeof(T)) : 0)
                 : "memory");
#else
    cuda_on_cpu::start_copy(to, is ? from : nullptr, sizeof(T));
#endif
  }
  __device__ void finish(T*) const {}
};
#endif

inline __device__ void commit_copies() {
#if NEEDLE_SM80
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::commit_copies();
#endif
}

// Waits for the thread's copies of all groups but the `kOpen` latest.
template <int kOpen>
__device__ void wait_for_copies() {
#if NEEDLE_SM80
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::wait_for_copies(kOpen);
#endif
}

// The equivalent for sm_75 and for elements of 2 bytes, which wait in a register.
template <class T>
struct RegisterCopy {
  T value;
  __device__ void start(T*, const T* from, bool is) { value = is ? *from : T{}; }
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
inline __device__ std::uint32_t bf16_of(float x) {  // round to nearest, ties to even
  const std::uint32_t bits = bits_of(x);
  return std::isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
// 5 bits of exponent, 10 of mantissa; below 2^-14 in steps of 2^-24, from 65520 on infinite.
inline __device__ std::uint32_t fp16_of(float x) {
  const std::uint32_t sign = bits_of(x) >> 16 & 0x8000;
  const float size = std::fabs(x);
  if (std::isnan(x)) return 0x7fff;
  if (size >= 65520.0f) return sign | 0x7c00;
  const int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
  const auto mantissa = static_cast<std::uint32_t>(std::rint(std::ldexp(size, 10 - exponent)));
  return sign | (std::uint32_t(exponent + 14) * 1024 + mantissa);
}
inline __device__ float fp16_value(std::uint32_t bits) {
  const int exponent = int(bits >> 10 & 31), mantissa = int(bits & 1023);
  float size = std::ldexp(float(mantissa + 1024), exponent - 25);
  if (exponent == 0) size = std::ldexp(float(mantissa), -24);
  if (exponent == 31) size = float_of(mantissa == 0 ? 0x7f800000 : 0x7fffffff);
  return (bits & 0x8000) != 0 ? -size : size;
}
// The number that an element's bits stand for.
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

// The nearest bf16 (fp16) of both, `low` in the lower half of the word.
template <Precision kPrecision>
__device__ std::uint32_t pair(float low, float high) {
#if NEEDLE_SM80
  std::uint32_t word;
  if constexpr (kPrecision == Precision::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
#else
  if constexpr (kPrecision == Precision::kBf16) return bf16_of(low) | bf16_of(high) << 16;
  return fp16_of(low) | fp16_of(high) << 16;
#endif
}

struct alignas(16) Four {
  float of[4];
};

// Four numbers at base + offset, 0 where there `is` none. Written out, as a compiler would put the
// load and all that leads to its address behind a branch of its own.
inline __device__ Four load_four(const float* base, std::int32_t offset, bool is) {
#if NEEDLE_SM80
  Four x;
  asm volatile(
      "{\n"
      ".reg .pred is;\n"
      ".reg .u64 from;\n"
      "setp.ne.s32 is, %6, 0;\n"
      "mad.wide.s32 from, %5, 4, %4;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n"
      "@is ld.global.v4.f32 {%0, %1, %2, %3}, [from];\n"
      "}"
      : "=&f"(x.of[0]), "=&f"(x.of[1]), "=&f"(x.of[2]), "=&f"(x.of[3])
      : "l"(base), "r"(offset), "r"(int(is)));
  return x;
#else
  Four x{};
  if (is) memcpy(&x, base + offset, sizeof x);
  return x;
#endif
}

// Two words to 8 aligned bytes of shared memory.
inline __device__ void store_two(void* to, std::uint32_t first, std::uint32_t second) {
#if NEEDLE_SM80
  const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(place), "r"(first), "r"(second) : "memory");
#else
  const std::uint64_t both = first | std::uint64_t(second) << 32;
  memcpy(to, &both, sizeof both);
#endif
}

// A warp reads four matrices of 8 x 8 elements of 16 bits from shared memory: lane 8 m + r names
// row r of matrix m, 16 aligned bytes. Word m of lane 4 g + t are elements 2t and 2t + 1 of row g
// of matrix m, or of its column g if it is turned.
template <bool kTurned>
__device__ void load_matrices(std::uint32_t (&words)[4], const void* row) {
#if NEEDLE_SM80
  const auto place = static_cast<unsigned>(__cvta_generic_to_shared(row));
#define NEEDLE_LDMATRIX(form)                                                   \
  asm volatile(form " {%0, %1, %2, %3}, [%4];"                                  \
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) \
               : "r"(place)                                                     \
               : "memory")
  if constexpr (kTurned) {
    NEEDLE_LDMATRIX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16");
  } else {
    NEEDLE_LDMATRIX("ldmatrix.sync.aligned.m8n8.x4.shared.b16");
  }
#undef NEEDLE_LDMATRIX
#else
  cuda_on_cpu::ldmatrix<kTurned>(words, row);
#endif
}

// A warp adds a (16 x k) @ b (k x 8) to its 16 x 8 sums. Lane 4 g + t has sums (g, 2t), (g, 2t +
// 1), (g + 8, 2t), (g + 8, 2t + 1); of a, rows g and g + 8, and of b, column g. TF32 (k = 8): a's
// words are (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), b's are t, t + 4. Else (k = 16) a word
// holds two neighbours in k: 2t and 2t + 1 where TF32 has t, 2t + 8 and 2t + 9 where it has t + 4.
template <Precision kPrecision>
__device__ void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4],
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

// ---- warpgroups: four warps multiply matrices that lie in shared memory, while they go on ----

// Makes the thread's stores to shared memory visible to products that begin after the next barrier.
inline __device__ void show_to_warpgroups() {
#if NEEDLE_SM90A
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::fence_proxy();
#endif
}

// 0, set here: where a compiler would set sums, products may be under way.
inline __device__ float zero() {
  float sum = 0;
#if NEEDLE_SM90A
  asm volatile("mov.b32 %0, 0;" : "=f"(sum));
#endif
  return sum;
}

// Stands before products whose sums other instructions have used.
inline __device__ void begin_products() {
#if NEEDLE_SM90A
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Stands behind products; wait_for_products waits for all before it.
inline __device__ void end_products() {
#if NEEDLE_SM90A
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Until then sums must not be used, nor the matrices written over.
inline __device__ void wait_for_products() {
#if NEEDLE_SM90A
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::wait_for_products();
#endif
}

// The descriptor of a matrix of 16-bit elements in shared memory with 64-byte swizzling: atoms of 8
// rows of 64 bytes, whose parts of 16 bytes change places with bits 1 and 2 of the row's number.
// stride: from an atom to the next across the rows. leading: to the next along them, where the
// matrix is turned. Both in bytes; atoms begin at multiples of 512.
inline __device__ std::uint64_t matrix_at(const void* first, std::uint32_t leading,
                                          std::uint32_t stride) {
#if NEEDLE_SM90A
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(first));
#elif defined(NEEDLE_CUDA_ON_CPU)
  const std::uint32_t address = cuda_on_cpu::shared_address(first);
#else
  const std::uint32_t address = 0;
#endif
  constexpr std::uint64_t kBy64Bytes = 2;
  return (address & 0x3ffff) >> 4 | std::uint64_t(leading >> 4) << 16 |
         std::uint64_t(stride >> 4) << 32 | kBy64Bytes << 62;
}

// A warpgroup begins to add a (64 x 16) @ b (16 x 8 kCount) to its sums. Those of warp w are the
// rows 16 w to 16 w + 15; of 8 columns a lane has what multiply_add gives it. A matrix is turned if
// its rows in memory are depths, else they are lines (rows of a, columns of b).
template <Precision kPrecision, bool kTurnedA, bool kTurnedB, int kCount>
__device__ void multiply_add_matrices(float (&sums)[kCount][4], std::uint64_t a, std::uint64_t b) {
#if NEEDLE_SM90A
  static_assert(kCount == 8 || kCount == 16);
#define NEEDLE_OF(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])
#define NEEDLE_OF_16(j) NEEDLE_OF(j), NEEDLE_OF(j + 1), NEEDLE_OF(j + 2), NEEDLE_OF(j + 3)
#define NEEDLE_OF_32(j) NEEDLE_OF_16(j), NEEDLE_OF_16(j + 4)
#define NEEDLE_0_TO_31                                     \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NEEDLE_32_TO_63                                              \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
// The predicate p: the products are added to the sums.
#define NEEDLE_WGMMA(form, places, operands, ...)                                                \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" form " {" places "}, " operands ";\n}" \
               : __VA_ARGS__                                                                     \
               : "l"(a), "l"(b), "n"(int(kTurnedA)), "n"(int(kTurnedB)))
#define NEEDLE_WGMMA_OF(type)                                                        \
  if constexpr (kCount == 8) {                                                       \
    NEEDLE_WGMMA("wgmma.mma_async.sync.aligned.m64n64k16.f32." type, NEEDLE_0_TO_31, \
                 "%32, %33, p, 1, 1, %34, %35", NEEDLE_OF_32(0));                    \
  } else {                                                                           \
    NEEDLE_WGMMA("wgmma.mma_async.sync.aligned.m64n128k16.f32." type,                \
                 NEEDLE_0_TO_31 "," NEEDLE_32_TO_63, "%64, %65, p, 1, 1, %66, %67",  \
                 NEEDLE_OF_32(0), NEEDLE_OF_32(8));                                  \
  }
  if constexpr (kPrecision == Precision::kBf16) {
    NEEDLE_WGMMA_OF("bf16.bf16")
  } else {
    NEEDLE_WGMMA_OF("f16.f16")
  }
#undef NEEDLE_WGMMA_OF
#undef NEEDLE_WGMMA
#undef NEEDLE_32_TO_63
#undef NEEDLE_0_TO_31
#undef NEEDLE_OF_32
#undef NEEDLE_OF_16
#undef NEEDLE_OF
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::wgmma<kTurnedA, kTurnedB>(sums, a, b, value_of<kPrecision>);
#endif
}

// ---- bulk copies (TMA): a thread asks for a box of a tensor, which comes without instructions of
// other threads. What has arrived is counted in bytes by an object in shared memory ----

struct Arrival {  // an mbarrier, whose phases one thread completes and any may wait for
  std::uint64_t state;
};

#if NEEDLE_SM90A
inline __device__ unsigned in_shared(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}
#endif

// To be called by one thread; a fence (show_to_warpgroups) and a barrier follow.
inline __device__ void begin_arrivals(Arrival& arrival) {
#if NEEDLE_SM90A
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(in_shared(&arrival)) : "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::begin_arrivals(&arrival);
#endif
}

// The present phase ends when so many bytes have come.
inline __device__ void expect_bytes(Arrival& arrival, std::uint32_t bytes) {
#if NEEDLE_SM90A
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(in_shared(&arrival)),
               "r"(bytes)
               : "memory");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::expect_bytes(&arrival, bytes);
#endif
}

// Waits for the end of a phase; `parity`: the last bit of its number, from 0 on.
inline __device__ void wait_for_bytes(Arrival& arrival, std::uint32_t parity) {
#if NEEDLE_SM90A
  unsigned ended = 0;
  while (ended == 0) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(ended)
        : "r"(in_shared(&arrival)), "r"(parity)
        : "memory");
  }
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::wait_for_bytes(&arrival, parity);
#endif
}

#define NEEDLE_COPY_BOX(form, box, ...)                                                          \
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global." form                            \
               ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2]" box            \
               ";" ::"r"(in_shared(to)),                                                         \
               "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(in_shared(&arrival)), "r"(at[0]), \
               "r"(at[1]), "r"(at[2]), "r"(at[3])__VA_OPT__(, ) __VA_ARGS__                      \
               : "memory")

// The box of the tensor (box_map) that begins at element `at`.
inline __device__ void copy_box(void* to, const TensorMap& map, const int (&at)[4],
                                Arrival& arrival) {
#if NEEDLE_SM90A
  NEEDLE_COPY_BOX("tile", "");
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::copy_box(to, map, at, &arrival);
#endif
}

// Windows' pixels (window_map) from the one on that begins at `at` (C, W, H, N), and `tap` (W, H)
// pixels from there.
inline __device__ void copy_windows(void* to, const TensorMap& map, const int (&at)[4],
                                    const int (&tap)[2], Arrival& arrival) {
#if NEEDLE_SM90A
  NEEDLE_COPY_BOX("im2col", ", {%7, %8}", "h"(static_cast<std::uint16_t>(tap[0])),
                  "h"(static_cast<std::uint16_t>(tap[1])));
#elif defined(NEEDLE_CUDA_ON_CPU)
  cuda_on_cpu::copy_windows(to, map, at, tap, &arrival);
#endif
}
#undef NEEDLE_COPY_BOX

}  // namespace
}  // namespace needle::cuda
