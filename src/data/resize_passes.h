// The two passes of bilinear resizing, for bytes in fixed point and for floats: make_line
// (vertical: some rows to one line) and make_row_of (horizontal: a line to an output row).
// resize.cc, which has the formula, calls them for each output row.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/simd.h"
#include "resize_axis.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace needle::data::NEEDLE_ISA {
namespace {

using Index = std::int64_t;
using Byte = std::uint8_t;
using pixel::kLineShift, pixel::kOutShift;

// ---- vertical: some rows to one line -----------------------------------------------------------

struct VerticalTaps {
  Index count;
  const std::int16_t* weight;
  const float* real;
};

void line_tail(const Byte* rows, Index stride, const VerticalTaps& taps, Index begin, Index end,
               std::int16_t* line) {
  for (Index e = begin; e < end; ++e) {
    std::int32_t sum = 1 << (kLineShift - 1);
    for (Index t = 0; t < taps.count; ++t) sum += taps.weight[t] * rows[t * stride + e];
    line[e] = std::int16_t(sum >> kLineShift);
  }
}

#ifdef __AVX2__

[[gnu::always_inline]] inline __m256i load32(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

[[gnu::always_inline]] inline void store32(void* to, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), v);
}

// Computes 32 elements of a line from kPairs pairs of rows; 0 means any number of pairs.
template <int kPairs>
[[gnu::always_inline]] inline void line_block(const Byte* rows, Index stride,
                                              const VerticalTaps& taps, std::int16_t* line) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i sums[4];
  for (__m256i& sum : sums) sum = _mm256_set1_epi32(1 << (kLineShift - 1));
  const Index pairs = kPairs ? kPairs : (taps.count + 1) / 2;
  for (Index p = 0; p < pairs; ++p) {
    std::int32_t weights;
    std::memcpy(&weights, taps.weight + 2 * p, sizeof weights);
    const __m256i w = _mm256_set1_epi32(weights);
    const Byte* row = rows + 2 * p * stride;
    const __m256i a = load32(row), b = load32(2 * p + 1 < taps.count ? row + stride : row);
    const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
    const __m256i parts[4] = {_mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                              _mm256_unpacklo_epi8(high, zero), _mm256_unpackhi_epi8(high, zero)};
    for (int i = 0; i < 4; ++i) {
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(parts[i], w));
    }
  }
  for (__m256i& sum : sums) sum = _mm256_srai_epi32(sum, kLineShift);
  const __m256i low = _mm256_packs_epi32(sums[0], sums[1]);
  const __m256i high = _mm256_packs_epi32(sums[2], sums[3]);
  store32(line, _mm256_permute2x128_si256(low, high, 0x20));
  store32(line + 16, _mm256_permute2x128_si256(low, high, 0x31));
}

template <int kPairs>
void line_blocks(const Byte* rows, Index stride, const VerticalTaps& taps, Index count,
                 std::int16_t* line) {
  for (Index e = 0; e + 32 <= count; e += 32) line_block<kPairs>(rows + e, stride, taps, line + e);
  if (count % 32 != 0) {  // the last 32, overlapping
    line_block<kPairs>(rows + count - 32, stride, taps, line + count - 32);
  }
}

void make_line(const Byte* rows, Index stride, const VerticalTaps& taps, Index count,
               std::int16_t* line) {
  if (count < 32) {
    line_tail(rows, stride, taps, 0, count, line);
  } else if (taps.count <= 2) {
    line_blocks<1>(rows, stride, taps, count, line);
  } else if (taps.count <= 4) {
    line_blocks<2>(rows, stride, taps, count, line);
  } else {
    line_blocks<0>(rows, stride, taps, count, line);
  }
}

#else

void make_line(const Byte* rows, Index stride, const VerticalTaps& taps, Index count,
               std::int16_t* line) {
  if (taps.count != 2) return line_tail(rows, stride, taps, 0, count, line);
  const std::int32_t a = taps.weight[0], b = taps.weight[1];
  const Byte* const next = rows + stride;
  for (Index e = 0; e < count; ++e) {
    line[e] = std::int16_t((a * rows[e] + b * next[e] + (1 << (kLineShift - 1))) >> kLineShift);
  }
}

#endif

void make_line(const float* rows, Index stride, const VerticalTaps& taps, Index count,
               float* line) {
  using V = simd::Vector<float>;
  constexpr Index kBlock = 2 * simd::kLanes<float>;
  Index e = 0;
  for (; e + kBlock <= count; e += kBlock) {
    V first = simd::load(rows + e) * taps.real[0];
    V second = simd::load(rows + e + simd::kLanes<float>) * taps.real[0];
    for (Index t = 1; t < taps.count; ++t) {
      const float* row = rows + t * stride + e;
      first += simd::load(row) * taps.real[t];
      second += simd::load(row + simd::kLanes<float>) * taps.real[t];
    }
    std::memcpy(line + e, &first, sizeof first);
    std::memcpy(line + e + simd::kLanes<float>, &second, sizeof second);
  }
  for (; e < count; ++e) {
    float sum = rows[e] * taps.real[0];
    for (Index t = 1; t < taps.count; ++t) sum += rows[t * stride + e] * taps.real[t];
    line[e] = sum;
  }
}

// ---- horizontal: a line to an output row -------------------------------------------------------

// kChannels is 0 for any number of channels.
template <int kChannels>
void sum_row(const std::int16_t* line, const ResizeAxis& axis, Index channel_count, Byte* out) {
  const Index channels = kChannels ? kChannels : channel_count;
  for (Index i = 0; i < axis.out; ++i) {
    const std::int16_t* weight = axis.weight + i * axis.taps;
    const std::int16_t* from = line + axis.first[i] * channels;
    for (Index c = 0; c < channels; ++c) {
      std::int32_t sum = 1 << (kOutShift - 1);
      for (Index t = 0; t < axis.count[i]; ++t) sum += weight[t] * from[t * channels + c];
      out[i * channels + c] = Byte(sum >> kOutShift);
    }
  }
}

#ifdef __AVX2__

// Returns the shuffle mask that interleaves two pixels of kChannels 16-bit values, channel by
// channel. The result has four channels; missing ones are zero.
template <int kChannels>
[[gnu::always_inline]] inline __m256i pair_mask() {
  char bytes[32];
  for (int i = 0; i < 32; ++i) {
    const int channel = i % 16 / 4, pixel = i % 4 / 2;
    bytes[i] = channel < kChannels ? char((pixel * kChannels + channel) * 2 + i % 2) : char(-1);
  }
  return load32(bytes);
}

// Returns the shuffle mask that packs pixels of four bytes to kChannels bytes, in each half.
template <int kChannels>
[[gnu::always_inline]] inline __m256i squeeze_mask() {
  char bytes[32];
  for (int i = 0; i < 32; ++i) {
    const int at = i % 16, pixel = at / kChannels;
    bytes[i] = pixel < 4 ? char(pixel * 4 + at % kChannels) : char(-1);
  }
  return load32(bytes);
}

// Stores eight pixels of kChannels bytes. Four are at the start of each half of v.
template <int kChannels>
[[gnu::always_inline]] inline void store_pixels(Byte* to, __m256i v) {
  const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
  if constexpr (kChannels == 4) {
    store32(to, v);
  } else if constexpr (kChannels == 3) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_or_si128(low, _mm_slli_si128(high, 12)));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 16), _mm_srli_si128(high, 4));
  } else if constexpr (kChannels == 2) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi64(low, high));
  } else {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi32(low, high));
  }
}

template <int kChannels, int kPairs>
[[gnu::always_inline]] inline __m256i row_block(const std::int16_t* line, const ResizeAxis& axis,
                                                Index i, __m256i mask) {
  const Index pairs = kPairs ? kPairs : axis.taps / 2;
  const std::int32_t* weight = axis.pairs + i * 4 * pairs;
  __m256i sums[4];
  for (Index j = 0; j < 4; ++j) {
    const std::int16_t* low = line + Index(axis.first[i + j]) * kChannels;
    const std::int16_t* high = line + Index(axis.first[i + j + 4]) * kChannels;
    sums[j] = _mm256_set1_epi32(1 << (kOutShift - 1));
    for (Index p = 0; p < pairs; ++p, weight += 8) {
      const Index at = p * 2 * kChannels;
      const __m256i both = _mm256_inserti128_si256(
          _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low + at))),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(high + at)), 1);
      const __m256i values = _mm256_shuffle_epi8(both, mask);
      sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(values, load32(weight)));
    }
    sums[j] = _mm256_srai_epi32(sums[j], kOutShift);
  }
  return _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                             _mm256_packs_epi32(sums[2], sums[3]));
}

template <int kChannels, int kPairs>
void row_blocks(const std::int16_t* line, const ResizeAxis& axis, Byte* out) {
  const __m256i mask = pair_mask<kChannels>(), squeeze = squeeze_mask<kChannels>();
  Index i = 0;
  for (; i + 8 <= axis.out; i += 8) {
    const __m256i block = row_block<kChannels, kPairs>(line, axis, i, mask);
    store_pixels<kChannels>(out + i * kChannels, _mm256_shuffle_epi8(block, squeeze));
  }
  if (i < axis.out) {
    Byte last[32];
    const __m256i block = row_block<kChannels, kPairs>(line, axis, i, mask);
    store_pixels<kChannels>(last, _mm256_shuffle_epi8(block, squeeze));
    std::memcpy(out + i * kChannels, last, std::size_t((axis.out - i) * kChannels));
  }
}

template <int kChannels>
void make_row(const std::int16_t* line, const ResizeAxis& axis, Index, Byte* out) {
  if (axis.taps == 2) {
    row_blocks<kChannels, 1>(line, axis, out);
  } else if (axis.taps == 4) {
    row_blocks<kChannels, 2>(line, axis, out);
  } else {
    row_blocks<kChannels, 0>(line, axis, out);
  }
}

#else

template <int kChannels>
void make_row(const std::int16_t* line, const ResizeAxis& axis, Index channels, Byte* out) {
  sum_row<kChannels>(line, axis, channels, out);
}

#endif

// Computes one channel after the other; missing taps have weight zero.
template <int kTaps>
void sum_row(const float* line, const ResizeAxis& axis, Index channels, float* out) {
  const Index taps = kTaps ? kTaps : axis.taps;
  const Index step = axis.mirrored ? -channels : channels;
  for (Index i = 0; i < axis.out; ++i) {
    const float* weight = axis.real + i * axis.taps;
    const Index first = axis.first[i] + (axis.mirrored ? axis.count[i] - 1 : 0);
    for (Index c = 0; c < channels; ++c) {
      const float* from = line + first * channels + c;
      float sum = from[0] * weight[0];
      for (Index t = 1; t < taps; ++t) sum += from[t * step] * weight[t];
      out[i * channels + c] = sum;
    }
  }
}

// Computes all channels of a pixel in one vector. A store may reach into the next pixel, which is
// stored after it.
template <int kChannels, int kTaps>
void vector_row(const float* line, const ResizeAxis& axis, float* out) {
  typedef float Pixel __attribute__((vector_size(16)));
  const Index taps = kTaps ? kTaps : axis.taps;
  const Index step = axis.mirrored ? -kChannels : kChannels;
  for (Index i = 0; i < axis.out; ++i) {
    const float* weight = axis.real + i * axis.taps;
    const Index first = axis.first[i] + (axis.mirrored ? axis.count[i] - 1 : 0);
    const float* from = line + first * kChannels;
    Pixel value;
    std::memcpy(&value, from, sizeof value);
    Pixel sum = value * weight[0];
    for (Index t = 1; t < taps; ++t) {
      std::memcpy(&value, from + t * step, sizeof value);
      sum += value * weight[t];
    }
    if (i + 1 < axis.out) {
      std::memcpy(out + i * kChannels, &sum, sizeof sum);
    } else {
      std::memcpy(out + i * kChannels, &sum, kChannels * sizeof(float));
    }
  }
}

template <int kTaps>
void make_row_of(const float* line, const ResizeAxis& axis, Index channels, float* out) {
  if (channels == 3) return vector_row<3, kTaps>(line, axis, out);
  if (channels == 4) return vector_row<4, kTaps>(line, axis, out);
  sum_row<kTaps>(line, axis, channels, out);
}

void make_row_of(const float* line, const ResizeAxis& axis, Index channels, float* out) {
  // Mirrored lines are read backwards, so that the order of additions is the same.
  if (axis.taps == 2) return make_row_of<2>(line, axis, channels, out);
  if (axis.taps == 4) return make_row_of<4>(line, axis, channels, out);
  make_row_of<0>(line, axis, channels, out);
}

void make_row_of(const std::int16_t* line, const ResizeAxis& axis, Index channels, Byte* out) {
  switch (channels) {
    case 1: return make_row<1>(line, axis, channels, out);
    case 2: return make_row<2>(line, axis, channels, out);
    case 3: return make_row<3>(line, axis, channels, out);
    case 4: return make_row<4>(line, axis, channels, out);
    default: return sum_row<0>(line, axis, channels, out);
  }
}

}  // namespace
}  // namespace needle::data::NEEDLE_ISA
