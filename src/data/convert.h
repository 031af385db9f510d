// Converts runs of bytes to floats, by a cast or by a division by 255. The steps of each
// instruction set include this file.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/not_implemented.h"
#include "core/pixel_formulas.h"
#include "core/simd.h"
#include "window.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace needle::data::NEEDLE_ISA {
namespace {

using Index = std::int64_t;

using pixel::scaled;

constexpr Index kLanes = simd::kLanes<float>;
using Floats = simd::Vector<float>;

// Loads kLanes bytes as floats, in reverse order if kMirrored. Uses intrinsics, because gcc 12
// compiles __builtin_convertvector byte by byte.
template <bool kMirrored>
[[gnu::always_inline]] inline Floats widened(const std::uint8_t* bytes) {
  typedef std::int32_t Words __attribute__((vector_size(simd::kVectorBytes)));
#if defined(__AVX512F__)
  __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  if constexpr (kMirrored) {
    const __m128i order = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    sixteen = _mm_shuffle_epi8(sixteen, order);
  }
  const Words words = (Words)_mm512_maskz_cvtepu8_epi32(0xFFFF, sixteen);
#elif defined(__AVX2__)
  __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  if constexpr (kMirrored) {
    eight = _mm_shuffle_epi8(eight, _mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  }
  const Words words = (Words)_mm256_cvtepu8_epi32(eight);
#elif defined(__SSE2__)
  std::int32_t four;
  std::memcpy(&four, bytes, sizeof four);
  if constexpr (kMirrored) four = static_cast<std::int32_t>(__builtin_bswap32(four));
  const __m128i zero = _mm_setzero_si128();
  const __m128i halves = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero);
  const Words words = (Words)_mm_unpacklo_epi16(halves, zero);
#else
  typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));
  Bytes packed;
  if constexpr (kMirrored) {
    for (int i = 0; i < kLanes; ++i) packed[i] = bytes[kLanes - 1 - i];
  } else {
    std::memcpy(&packed, bytes, sizeof packed);
  }
  const Words words = __builtin_convertvector(packed, Words);
#endif
  return __builtin_convertvector(words, Floats);
}

// Computes out[i] = f(float(in[i])), or f(float(in[-i])) if kMirrored.
template <bool kMirrored, class F>
[[gnu::always_inline]] inline void convert_run(const std::uint8_t* in, float* out, Index n, F f) {
  /// BEGIN SOLUTION [augment-rows]
  // The last vector overlaps the one before, so rows of any length (a crop's) have no scalar tail.
  const auto convert_at = [&](Index i) __attribute__((always_inline)) {
    const Floats values = f(widened<kMirrored>(kMirrored ? in - i - (kLanes - 1) : in + i));
    std::memcpy(out + i, &values, sizeof values);
  };
  if (n < kLanes) {
    for (Index i = 0; i < n; ++i) out[i] = f(static_cast<float>(in[kMirrored ? -i : i]));
    return;
  }
  for (Index i = 0; i + kLanes <= n; i += kLanes) convert_at(i);
  if (n % kLanes != 0) convert_at(n - kLanes);
  /// END SOLUTION
}

// Calls f with a function that converts one value of channel c: by kScale or kCast, and then by the
// normalisation in `numbers` (the means, then the deviations) unless that is null.
template <class F>
[[gnu::always_inline]] inline void with_formula(StageKind kind, const float* numbers,
                                                Index channels, Index c, F&& f) {
  const bool scales = kind == StageKind::kScale;
  if (numbers == nullptr) {
    scales ? f([](auto x) { return scaled(x); }) : f([](auto x) { return x; });
    return;
  }
  const float mean = numbers[c], std = numbers[channels + c];
  scales ? f([=](auto x) { return (scaled(x) - mean) / std; })
         : f([=](auto x) { return (x - mean) / std; });
}

}  // namespace
}  // namespace needle::data::NEEDLE_ISA
