// Transforms colours by a 3x4 matrix. Channel c of the output is
//   clip(((m[c][0] * r + m[c][1] * g) + m[c][2] * b) + m[c][3])
// in float32, each operation rounded separately, in this order. Bytes are rounded half to even and
// clipped to 0..255, floats clipped to 0..1. Grey: clip(m[0][0] * x + m[0][3]).
//
// Rows are processed in pieces, through small arrays with one plane per channel, whose loops
// vectorise on every instruction set. Interleaved bytes have separate loops. For a diagonal matrix,
// a table of 256 results would be slower, because it needs one look-up per value.
#include <cstring>

#include "core/not_implemented.h"
#include "core/pixel_formulas.h"
#include "steps.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace needle::data::NEEDLE_ISA {
namespace {

using Index = std::int64_t;
using Byte = std::uint8_t;
constexpr Index kPiece = 192;  // values, a multiple of 3

[[gnu::always_inline]] inline void finish(float value, Byte& to) { to = pixel::to_byte(value); }
[[gnu::always_inline]] inline void finish(float value, float& to) { to = pixel::clip(value, 1.0f); }

template <class T>
void fetch(const T* from, Index stride, Index count, float* to) {
  for (Index i = 0; i < count; ++i) to[i] = float(from[i * stride]);
}

template <class T>
void deliver(const T* from, Index stride, Index count, T* to) {
  if (stride == 1) {
    std::memcpy(to, from, std::size_t(count) * sizeof(T));
  } else {
    for (Index i = 0; i < count; ++i) to[i * stride] = from[i];
  }
}

// A row of an image.
template <class T>
struct Row {
  T* data;
  Index column_stride, channel_stride;
};

template <class T>
Row<T> advanced(const Row<T>& row, Index columns) {
  return {row.data + columns * row.column_stride, row.column_stride, row.channel_stride};
}

// Returns true if the pixels of a row (or image) are three adjacent channels without gaps.
template <class R>
bool neighbours(const R& row) {
  return row.column_stride == 3 && row.channel_stride == 1;
}

template <class T>
void mix_row(const Row<T>& in, const Row<T>& out, Index count, const float* m) {
  /// BEGIN SOLUTION [augment-colour]
  float x[3][kPiece];
  T results[kPiece];
  for (Index begin = 0; begin < count; begin += kPiece) {
    const Index piece = count - begin < kPiece ? count - begin : kPiece;
    for (Index c = 0; c < 3; ++c) {
      fetch(in.data + begin * in.column_stride + c * in.channel_stride, in.column_stride, piece,
            x[c]);
    }
    for (Index c = 0; c < 3; ++c) {
      const float *const r = x[0], *const g = x[1], *const b = x[2], *const w = m + 4 * c;
      const float w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
      for (Index i = 0; i < piece; ++i) {
        finish(w0 * r[i] + w1 * g[i] + w2 * b[i] + w3, results[i]);
      }
      deliver(results, out.column_stride, piece,
              out.data + begin * out.column_stride + c * out.channel_stride);
    }
  }
  /// END SOLUTION
}

// Computes scale * x + offset for one channel of a row: a grey image, or a diagonal matrix.
template <class T>
void scale_row(const Row<T>& in, const Row<T>& out, Index count, float scale, float offset) {
  float x[kPiece];
  T results[kPiece];
  for (Index begin = 0; begin < count; begin += kPiece) {
    const Index piece = count - begin < kPiece ? count - begin : kPiece;
    fetch(in.data + begin * in.column_stride, in.column_stride, piece, x);
    for (Index i = 0; i < piece; ++i) finish(scale * x[i] + offset, results[i]);
    deliver(results, out.column_stride, piece, out.data + begin * out.column_stride);
  }
}

// ---- interleaved bytes -------------------------------------------------------------------------

// The factors and offsets of a row's values repeat after kPattern values. With kUniform, there is
// one pair for all values.
constexpr Index kPattern = 96;

#ifdef __AVX2__

// Rounds half to even; the saturating pack clamps values below 0.
[[gnu::always_inline]] inline __m256i rounded(__m256 value) {
  return _mm256_cvtps_epi32(_mm256_min_ps(value, _mm256_set1_ps(255.0f)));
}

[[gnu::always_inline]] inline __m256 eight_floats(const Byte* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

template <bool kUniform>
[[gnu::always_inline]] inline __m256 numbers(const float* from, int i) {
  return kUniform ? _mm256_set1_ps(*from) : _mm256_loadu_ps(from + i);
}

template <bool kUniform>
[[gnu::always_inline]] inline void scale_block(const Byte* in, Byte* out, const float* scale,
                                               const float* offset) {
  __m256i v[4];
  for (int i = 0; i < 4; ++i) {
    const __m256 part = _mm256_mul_ps(numbers<kUniform>(scale, 8 * i), eight_floats(in + 8 * i));
    v[i] = rounded(_mm256_add_ps(part, numbers<kUniform>(offset, 8 * i)));
  }
  const __m256i bytes =
      _mm256_packus_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permutevar8x32_epi32(bytes, order));
}

#else

template <bool kUniform>
[[gnu::always_inline]] inline void scale_block(const Byte* in, Byte* out, const float* scale,
                                               const float* offset) {
  Byte results[32];
  for (Index i = 0; i < 32; ++i) {
    finish(scale[kUniform ? 0 : i] * float(in[i]) + offset[kUniform ? 0 : i], results[i]);
  }
  std::memcpy(out, results, sizeof results);
}

#endif

template <bool kUniform>
void scale_bytes(const Byte* in, Byte* out, Index count, const float* scale, const float* offset) {
  Index column = 0, place = 0;
  for (; column + 32 <= count; column += 32) {
    scale_block<kUniform>(in + column, out + column, scale + place, offset + place);
    if (!kUniform) place = place + 32 == kPattern ? 0 : place + 32;
  }
  for (Index i = place; column < count; ++column, i += kUniform ? 0 : 1) {
    finish(scale[i] * float(in[column]) + offset[i], out[column]);
  }
}

#ifdef __AVX2__

[[gnu::always_inline]] inline __m256i mix_channel(const __m256 x[3], const float* m) {
  __m256 sum = _mm256_mul_ps(_mm256_set1_ps(m[0]), x[0]);
  sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_set1_ps(m[1]), x[1]));
  sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_set1_ps(m[2]), x[2]));
  return rounded(_mm256_add_ps(sum, _mm256_set1_ps(m[3])));
}

// Returns eight pixels as bytes; each half of the vector has four bytes per channel.
[[gnu::always_inline]] inline __m256i mix_eight(const __m256 x[3], const float* m) {
  const __m256i r = mix_channel(x, m), g = mix_channel(x, m + 4), b = mix_channel(x, m + 8);
  return _mm256_packus_epi16(_mm256_packs_epi32(r, g), _mm256_packs_epi32(b, b));
}

// The masks for eight pixels of three bytes, loaded so that the upper half starts at the ninth
// byte.
struct Masks {
  __m256i channel[3];  // bytes of a channel to 32-bit numbers
  __m256i pixel;       // four bytes per channel to three per pixel, in each half
};

[[gnu::always_inline]] inline Masks make_masks() {
  Masks masks;
  char bytes[32];
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 32; ++i)
      bytes[i] = i % 4 ? char(-1) : char(i / 16 * 4 + i % 16 / 4 * 3 + c);
    std::memcpy(&masks.channel[c], bytes, sizeof bytes);
  }
  for (int i = 0; i < 32; ++i)
    bytes[i] = i % 16 < 12 ? char(i % 16 % 3 * 4 + i % 16 / 3) : char(-1);
  std::memcpy(&masks.pixel, bytes, sizeof bytes);
  return masks;
}

// Transforms pixels of three bytes; it reads and writes exactly 24 bytes.
[[gnu::always_inline]] inline void mix_pixels(const Byte* in, Byte* out, const float* m,
                                              const Masks& masks) {
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + 8));
  const __m256i bytes = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
  __m256 x[3];
  for (int c = 0; c < 3; ++c) {
    x[c] = _mm256_cvtepi32_ps(_mm256_shuffle_epi8(bytes, masks.channel[c]));
  }
  const __m256i pixels = _mm256_shuffle_epi8(mix_eight(x, m), masks.pixel);
  const __m128i low = _mm256_castsi256_si128(pixels), high = _mm256_extracti128_si256(pixels, 1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_or_si128(low, _mm_slli_si128(high, 12)));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 16), _mm_srli_si128(high, 4));
}

[[gnu::always_inline]] inline void mix_planes(const Byte* in, Index in_plane, Byte* out,
                                              Index out_plane, const float* m) {
  __m256 x[3];
  for (int c = 0; c < 3; ++c) x[c] = eight_floats(in + c * in_plane);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i planes = _mm256_permutevar8x32_epi32(mix_eight(x, m), order);
  const __m128i low = _mm256_castsi256_si128(planes);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out), low);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out + out_plane), _mm_srli_si128(low, 8));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 2 * out_plane),
                   _mm256_extracti128_si256(planes, 1));
}

// Computes groups of eight pixels if the layout has a loop for them. Returns the number of pixels.
Index mix_eights(const Row<Byte>& in, const Row<Byte>& out, Index count, const float* m) {
  Index i = 0;
  if (neighbours(in) && neighbours(out)) {
    const Masks masks = make_masks();
    for (; i + 8 <= count; i += 8) mix_pixels(in.data + 3 * i, out.data + 3 * i, m, masks);
  } else if (in.column_stride == 1 && out.column_stride == 1) {
    for (; i + 8 <= count; i += 8) {
      mix_planes(in.data + i, in.channel_stride, out.data + i, out.channel_stride, m);
    }
  }
  return i;
}

#else

Index mix_eights(const Row<Byte>&, const Row<Byte>&, Index, const float*) { return 0; }

#endif

// ---- images ------------------------------------------------------------------------------------

bool is_diagonal(const float* m) {
  return m[1] == 0.0f && m[2] == 0.0f && m[4] == 0.0f && m[6] == 0.0f && m[8] == 0.0f &&
         m[9] == 0.0f;
}

void grey_row(const Row<Byte>& in, const Row<Byte>& out, Index count, float scale, float offset) {
  if (in.column_stride == 1 && out.column_stride == 1) {
    scale_bytes<true>(in.data, out.data, count, &scale, &offset);
  } else {
    scale_row(in, out, count, scale, offset);
  }
}

void grey_row(const Row<float>& in, const Row<float>& out, Index count, float scale, float offset) {
  scale_row(in, out, count, scale, offset);
}

// Only for bytes: with floats, the NaN of infinity times zero would be lost.
void diagonal_row(const Row<Byte>& in, const Row<Byte>& out, Index count, const float* m) {
  for (Index c = 0; c < 3; ++c) {
    const Row<Byte> from{in.data + c * in.channel_stride, in.column_stride, 0};
    const Row<Byte> to{out.data + c * out.channel_stride, out.column_stride, 0};
    grey_row(from, to, count, m[5 * c], m[4 * c + 3]);
  }
}

void colour_row(const Row<Byte>& in, const Row<Byte>& out, Index count, const float* m) {
  if (is_diagonal(m)) return diagonal_row(in, out, count, m);
  const Index done = mix_eights(in, out, count, m);
  mix_row(advanced(in, done), advanced(out, done), count - done, m);
}

void colour_row(const Row<float>& in, const Row<float>& out, Index count, const float* m) {
  mix_row(in, out, count, m);
}

// Calls f(row of in, row of out, number of pixels) for each row. Rows without gaps between them are
// joined into a single one.
template <class T, class F>
void each_row(const Image<T>& in, const Image<T>& out, F&& f) {
  const bool joined = in.row_stride == in.width * in.column_stride &&
                      out.row_stride == out.width * out.column_stride;
  const Index rows = joined ? 1 : in.height, width = joined ? in.height * in.width : in.width;
  for (Index y = 0; y < rows; ++y) {
    f(Row<T>{in.data + y * in.row_stride, in.column_stride, in.channel_stride},
      Row<T>{out.data + y * out.row_stride, out.column_stride, out.channel_stride}, width);
  }
}

template <class T>
void colour_image(const Image<T>& in, const Image<T>& out, const float* m) {
  each_row(in, out, [=](const Row<T>& from, const Row<T>& to, Index width) {
    if (in.channels == 1) {
      grey_row(from, to, width, m[0], m[3]);
    } else {
      colour_row(from, to, width, m);
    }
  });
}

// Transforms pixels of three interleaved bytes by a diagonal matrix.
void scale_pixels(const Image<Byte>& in, const Image<Byte>& out, const float* m) {
  if (m[0] == m[5] && m[0] == m[10] && m[3] == m[7] && m[3] == m[11]) {
    return each_row(in, out, [&](const Row<Byte>& from, const Row<Byte>& to, Index width) {
      scale_bytes<true>(from.data, to.data, 3 * width, m, m + 3);
    });
  }
  float scale[kPattern], offset[kPattern];
  for (Index i = 0; i < kPattern; ++i) {
    scale[i] = m[i % 3 * 5];
    offset[i] = m[i % 3 * 4 + 3];
  }
  each_row(in, out, [&](const Row<Byte>& from, const Row<Byte>& to, Index width) {
    scale_bytes<false>(from.data, to.data, 3 * width, scale, offset);
  });
}

}  // namespace

void colour(const Image<Byte>& in, const Image<Byte>& out, const float m[12]) {
  if (in.channels == 3 && is_diagonal(m) && neighbours(in) && neighbours(out)) {
    scale_pixels(in, out, m);
  } else {
    colour_image(in, out, m);
  }
}

void colour(const Image<float>& in, const Image<float>& out, const float m[12]) {
  colour_image(in, out, m);
}

}  // namespace needle::data::NEEDLE_ISA
