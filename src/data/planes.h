// Converts interleaved pixels to planes and back. A row becomes one run per channel, forwards or
// mirrored. Three channels of bytes have vector code. The steps of each instruction set include
// this.
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

// Computes planes[c * plane_stride + i] = pixels[3 * i + c], or pixel n - 1 - i if mirrored.
template <bool kMirrored, class T>
void split_three(const T* pixels, Index n, T* planes, Index plane_stride) {
  T* a = planes;
  T* b = planes + plane_stride;
  T* c = planes + 2 * plane_stride;
  for (Index i = 0; i < n; ++i) {
    const T* pixel = pixels + 3 * (kMirrored ? n - 1 - i : i);
    a[i] = pixel[0];
    b[i] = pixel[1];
    c[i] = pixel[2];
  }
}

#if defined(__SSSE3__)

// Shuffle masks for a permutation of 48 bytes in vectors of 16. byte[to][from][i] is the index in
// input vector `from` of byte i of output vector `to`, or 0x80 if another vector holds that byte.
struct ByteMasks {
  alignas(16) std::uint8_t byte[3][3][16];
};

// source(to, i) returns which of the 48 input bytes becomes byte i of output vector `to`.
template <class Source>
constexpr ByteMasks make_masks(Source source) {
  ByteMasks masks{};
  for (int to = 0; to < 3; ++to) {
    for (int from = 0; from < 3; ++from) {
      for (int i = 0; i < 16; ++i) {
        const int place = source(to, i) - 16 * from;
        masks.byte[to][from][i] = std::uint8_t(place >= 0 && place < 16 ? place : 0x80);
      }
    }
  }
  return masks;
}

// Returns output vector `to` of the permutation.
[[gnu::always_inline]] inline __m128i permuted(const __m128i from[3], const ByteMasks& masks,
                                               int to) {
  const auto* mask = reinterpret_cast<const __m128i*>(masks.byte[to]);
  const __m128i first = _mm_shuffle_epi8(from[0], mask[0]);
  const __m128i second = _mm_shuffle_epi8(from[1], mask[1]);
  return _mm_or_si128(_mm_or_si128(first, second), _mm_shuffle_epi8(from[2], mask[2]));
}

[[gnu::always_inline]] inline __m128i load16(const std::uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
[[gnu::always_inline]] inline void store16(std::uint8_t* to, __m128i v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v);
}

template <bool kMirrored>
constexpr ByteMasks kSplitMasks =
    make_masks([](int c, int i) { return 3 * (kMirrored ? 15 - i : i) + c; });

// Splits 16 pixels (48 bytes) into three planes.
template <bool kMirrored>
[[gnu::always_inline]] inline void split_sixteen(const std::uint8_t* pixels, std::uint8_t* planes,
                                                 Index plane_stride) {
  const __m128i from[3] = {load16(pixels), load16(pixels + 16), load16(pixels + 32)};
  for (int c = 0; c < 3; ++c) {
    store16(planes + c * plane_stride, permuted(from, kSplitMasks<kMirrored>, c));
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
  split_three<kMirrored, std::uint8_t>(pixels, n, planes, plane_stride);
}

#if defined(__SSSE3__)

constexpr ByteMasks kMirrorMasks = make_masks([](int part, int i) {
  const int to = 16 * part + i;
  return 3 * (15 - to / 3) + to % 3;
});

// Reverses the order of 16 pixels (48 bytes).
[[gnu::always_inline]] inline void mirror_sixteen(const std::uint8_t* pixels, std::uint8_t* out) {
  const __m128i from[3] = {load16(pixels), load16(pixels + 16), load16(pixels + 32)};
  for (int part = 0; part < 3; ++part) store16(out + 16 * part, permuted(from, kMirrorMasks, part));
}

// Writes pixel n - 1 - i to pixel i of `out`. Returns n, or 0 if the pixels do not fill a vector.
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

constexpr ByteMasks kJoinMasks = make_masks([](int part, int i) {
  const int at = 16 * part + i;
  return 16 * (at % 3) + at / 3;
});

Index join_three(const std::uint8_t* planes, Index plane_stride, Index n, std::uint8_t* pixels) {
  Index i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m128i plane[3] = {load16(planes + i), load16(planes + plane_stride + i),
                              load16(planes + 2 * plane_stride + i)};
    for (int part = 0; part < 3; ++part) {
      store16(pixels + 3 * i + 16 * part, permuted(plane, kJoinMasks, part));
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
