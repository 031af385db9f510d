// Interleaved pixels to planes and back: a row becomes one run per channel, forwards or mirrored.
// Included by the steps of an instruction set; three channels of bytes have vector code.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSSE3__)
#include <tmmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace needle::data::NEEDLE_ISA {
namespace {

using Index = std::int64_t;

// Computes planes[c * plane_stride + i] = pixels[3 * i + c], or of pixel n - 1 - i where mirrored.
template <bool kMirrored, class T>
void split_three_plainly(const T* pixels, Index from, Index n, T* planes, Index plane_stride) {
  T* a = planes;
  T* b = planes + plane_stride;
  T* c = planes + 2 * plane_stride;
  for (Index i = from; i < n; ++i) {
    const T* pixel = pixels + 3 * (kMirrored ? n - 1 - i : i);
    a[i] = pixel[0];
    b[i] = pixel[1];
    c[i] = pixel[2];
  }
}

template <bool kMirrored>
void split_three(const float* pixels, Index n, float* planes, Index plane_stride) {
  split_three_plainly<kMirrored>(pixels, 0, n, planes, plane_stride);
}

#if defined(__SSSE3__)

struct SplitMasks {  // for plane c: the destination of each byte of the `part`-th 16 of 48; 0x80:
                     // none
  alignas(16) std::uint8_t byte[3][3][16];
};

template <bool kMirrored>
constexpr SplitMasks make_split_masks() {
  SplitMasks masks{};
  for (int c = 0; c < 3; ++c) {
    for (int part = 0; part < 3; ++part) {
      for (int i = 0; i < 16; ++i) {
        const int at = 3 * (kMirrored ? 15 - i : i) + c - 16 * part;
        masks.byte[c][part][i] = at >= 0 && at < 16 ? std::uint8_t(at) : std::uint8_t(0x80);
      }
    }
  }
  return masks;
}

template <bool kMirrored>
constexpr SplitMasks kSplitMasks = make_split_masks<kMirrored>();

// Splits 16 pixels (48 bytes) into three planes.
template <bool kMirrored>
[[gnu::always_inline]] inline void split_sixteen(const std::uint8_t* pixels, std::uint8_t* planes,
                                                 Index plane_stride) {
  const SplitMasks& masks = kSplitMasks<kMirrored>;
  const auto* from = reinterpret_cast<const __m128i*>(pixels);
  const __m128i x = _mm_loadu_si128(from), y = _mm_loadu_si128(from + 1),
                z = _mm_loadu_si128(from + 2);
  for (int c = 0; c < 3; ++c) {
    const auto* mask = reinterpret_cast<const __m128i*>(masks.byte[c]);
    const __m128i plane =
        _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x, mask[0]), _mm_shuffle_epi8(y, mask[1])),
                     _mm_shuffle_epi8(z, mask[2]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(planes + c * plane_stride), plane);
  }
}

#elif defined(__ARM_NEON)

template <bool kMirrored>
[[gnu::always_inline]] inline void split_sixteen(const std::uint8_t* pixels, std::uint8_t* planes,
                                                 Index plane_stride) {
  const uint8x16x3_t three = vld3q_u8(pixels);
  for (int c = 0; c < 3; ++c) {
    uint8x16_t plane = three.val[c];
    if constexpr (kMirrored) {
      plane = vrev64q_u8(plane);
      plane = vcombine_u8(vget_high_u8(plane), vget_low_u8(plane));
    }
    vst1q_u8(planes + c * plane_stride, plane);
  }
}

#endif

template <bool kMirrored>
void split_three(const std::uint8_t* pixels, Index n, std::uint8_t* planes, Index plane_stride) {
#if defined(__SSSE3__) || defined(__ARM_NEON)
  if (n >=
      16) {  // the last vector overlaps the one before, so rows of any length have no scalar rest
    for (Index i = 0; i < n; i += 16) {
      const Index to = i + 16 <= n ? i : n - 16;
      const std::uint8_t* from = pixels + 3 * (kMirrored ? n - 16 - to : to);
      if constexpr (kMirrored) __builtin_prefetch(from + 3 * n);  // the next row, as below
      split_sixteen<kMirrored>(from, planes + to, plane_stride);
    }
    return;
  }
#endif
  split_three_plainly<kMirrored>(pixels, 0, n, planes, plane_stride);
}

#if defined(__SSSE3__)

struct MirrorMasks {  // for the `part`-th 16 of 48 bytes: the destination of each byte of the
                      // `from`-th
  alignas(16) std::uint8_t byte[3][3][16];
};

constexpr MirrorMasks make_mirror_masks() {
  MirrorMasks masks{};
  for (int part = 0; part < 3; ++part) {
    for (int from = 0; from < 3; ++from) {
      for (int i = 0; i < 16; ++i) {
        const int to = 16 * part + i, at = 3 * (15 - to / 3) + to % 3 - 16 * from;
        masks.byte[part][from][i] = at >= 0 && at < 16 ? std::uint8_t(at) : std::uint8_t(0x80);
      }
    }
  }
  return masks;
}

constexpr MirrorMasks kMirrorMasks = make_mirror_masks();

// Reverses 16 pixels (48 bytes).
[[gnu::always_inline]] inline void mirror_sixteen(const std::uint8_t* pixels, std::uint8_t* out) {
  const auto* from = reinterpret_cast<const __m128i*>(pixels);
  const __m128i x = _mm_loadu_si128(from), y = _mm_loadu_si128(from + 1),
                z = _mm_loadu_si128(from + 2);
  for (int part = 0; part < 3; ++part) {
    const auto* mask = reinterpret_cast<const __m128i*>(kMirrorMasks.byte[part]);
    const __m128i mirrored =
        _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(x, mask[0]), _mm_shuffle_epi8(y, mask[1])),
                     _mm_shuffle_epi8(z, mask[2]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out) + part, mirrored);
  }
}

// Writes out pixel i = pixel n - 1 - i, for as many pixels as fill vectors.
Index mirror_three(const std::uint8_t* pixels, Index n, std::uint8_t* out) {
  if (n < 16) return 0;
  for (Index i = 0; i < n; i += 16) {  // the last vector overlaps the one before
    const Index to = i + 16 <= n ? i : n - 16;
    const std::uint8_t* from = pixels + 3 * (n - 16 - to);
    __builtin_prefetch(from + 3 * n);  // the next row: the prefetcher cannot predict the jump back
    mirror_sixteen(from, out + 3 * to);
  }
  return n;
}

struct JoinMasks {  // for the `part`-th 16 of 48 bytes: the destination of each byte of plane c
  alignas(16) std::uint8_t byte[3][3][16];
};

constexpr JoinMasks make_join_masks() {
  JoinMasks masks{};
  for (int part = 0; part < 3; ++part) {
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < 16; ++i) {
        const int at = 16 * part + i;
        masks.byte[part][c][i] = at % 3 == c ? std::uint8_t(at / 3) : std::uint8_t(0x80);
      }
    }
  }
  return masks;
}

constexpr JoinMasks kJoinMasks = make_join_masks();

Index join_three(const std::uint8_t* planes, Index plane_stride, Index n, std::uint8_t* pixels) {
  Index i = 0;
  for (; i + 16 <= n; i += 16) {
    __m128i plane[3];
    for (int c = 0; c < 3; ++c) {
      plane[c] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes + c * plane_stride + i));
    }
    for (int part = 0; part < 3; ++part) {
      const auto* mask = reinterpret_cast<const __m128i*>(kJoinMasks.byte[part]);
      const __m128i joined = _mm_or_si128(
          _mm_or_si128(_mm_shuffle_epi8(plane[0], mask[0]), _mm_shuffle_epi8(plane[1], mask[1])),
          _mm_shuffle_epi8(plane[2], mask[2]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(pixels + 3 * i + 16 * part), joined);
    }
  }
  return i;
}

#else

Index mirror_three(const std::uint8_t*, Index, std::uint8_t*) { return 0; }

Index join_three(const std::uint8_t* planes, Index plane_stride, Index n, std::uint8_t* pixels) {
  Index i = 0;
#if defined(__ARM_NEON)
  for (; i + 16 <= n; i += 16) {
    const uint8x16x3_t three = {{vld1q_u8(planes + i), vld1q_u8(planes + plane_stride + i),
                                 vld1q_u8(planes + 2 * plane_stride + i)}};
    vst3q_u8(pixels + 3 * i, three);
  }
#else
  (void)planes, (void)plane_stride, (void)n, (void)pixels;
#endif
  return i;
}

#endif

Index join_three(const float*, Index, Index, float*) { return 0; }
Index mirror_three(const float*, Index, float*) { return 0; }

// Copies pixel i of the source to planes[c * plane_stride + i].
template <class T>
void split_pixels(const T* source, Index column_stride, Index channel_stride, Index channels,
                  Index n, T* planes, Index plane_stride) {
  if (channels == 3 && channel_stride == 1 && column_stride == 3) {
    return split_three<false>(source, n, planes, plane_stride);
  }
  if (channels == 3 && channel_stride == 1 && column_stride == -3) {
    return split_three<true>(source - 3 * (n - 1), n, planes, plane_stride);
  }
  for (Index c = 0; c < channels; ++c) {
    const T* from = source + c * channel_stride;
    T* to = planes + c * plane_stride;
    if (column_stride == 1) {
      std::memcpy(to, from, n * sizeof(T));
    } else if (column_stride == -1) {
      for (Index i = 0; i < n; ++i) to[i] = from[-i];
    } else {
      for (Index i = 0; i < n; ++i) to[i] = from[i * column_stride];
    }
  }
}

// Copies planes[c * plane_stride + i] to pixel i of out.
template <class T>
void join_pixels(const T* planes, Index plane_stride, Index channels, Index n, T* out,
                 Index column_stride, Index channel_stride) {
  Index from = 0;
  if (channels == 3 && channel_stride == 1 && column_stride == 3) {
    from = join_three(planes, plane_stride, n, out);
    const T* a = planes;
    const T* b = planes + plane_stride;
    const T* c = planes + 2 * plane_stride;
    for (Index i = from; i < n; ++i) {
      out[3 * i] = a[i];
      out[3 * i + 1] = b[i];
      out[3 * i + 2] = c[i];
    }
    return;
  }
  for (Index c = 0; c < channels; ++c) {
    const T* plane = planes + c * plane_stride;
    T* to = out + c * channel_stride;
    if (column_stride == 1) {
      std::memcpy(to, plane, n * sizeof(T));
    } else {
      for (Index i = 0; i < n; ++i) to[i * column_stride] = plane[i];
    }
  }
}

// Writes n interleaved pixels of a source that runs backwards through memory.
template <class T>
void mirror_pixels(const T* source, Index channels, Index n, T* out) {
  const T* lowest = source - channels * (n - 1);
  const Index from = channels == 3 ? mirror_three(lowest, n, out) : 0;
  for (Index i = from; i < n; ++i) {
    for (Index c = 0; c < channels; ++c) {
      out[i * channels + c] = lowest[(n - 1 - i) * channels + c];
    }
  }
}

}  // namespace
}  // namespace needle::data::NEEDLE_ISA
