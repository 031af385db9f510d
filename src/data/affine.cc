// Transforms images by an affine map. The output pixel at column X and row Y is the input at x = (a
// * X + b * Y) + c, y = (d * X + e * Y) + f. Pixel centres are at integers. Coordinates are
// float64; each operation is rounded separately. Pixels outside the input are `fill`.
//
// Bilinear, bytes: x and y in units of 2**-11, halves rounded up: q = floor(x * 2048 + 0.5),
// column = q >> 11, fraction = q & 2047; the weighted sum of the four pixels, in integers, is
// (sum + 2**21) >> 22. Floats: column = floor(x), u = float32(x - column), the same for y and v,
// and (p00 * (1 - u) + p01 * u) * (1 - v) + (p10 * (1 - u) + p11 * u) * v in float32. Nearest:
// floor(x + 0.5), floor(y + 0.5).
#include <cmath>
#include <cstring>

#include "core/pixel_formulas.h"
#include "steps.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace needle::data::NEEDLE_ISA {
namespace {

using Index = std::int64_t;
using Byte = std::uint8_t;
using pixel::kFractionBits;
constexpr Index kOne = pixel::kUnit;
constexpr Index kPiece = 128;  // pixels of a row whose positions are computed together

// ---- places ------------------------------------------------------------------------------------

// Computes one input coordinate of each of the output pixels X, X + 1, ... in row Y.
void places(const double* m, Index X, Index Y, Index count, double* to) {
  const double a = m[0], b = m[1] * double(Y), c = m[2];
  for (Index i = 0; i < count; ++i) to[i] = pixel::place(a, int(X + i), b, c);
}

// Does the same in units of 2**-11. Adding 1.5 * 2**52 leaves the integer in a double's low bits.
void fixed_places(const double* m, Index X, Index Y, Index count, Index* to) {
  double x[kPiece];
  places(m, X, Y, count, x);
  const double large = 6755399441055744.0;
  const Index zero = __builtin_bit_cast(Index, large);
  for (Index i = 0; i < count; ++i) {
    const double moved = pixel::in_units(x[i]) + large;
    to[i] = __builtin_bit_cast(Index, moved) - zero;
  }
}

template <class T>
[[gnu::always_inline]] inline bool has(const Image<T>& in, Index x, Index y) {
  return x >= 0 && x < in.width && y >= 0 && y < in.height;
}

template <class T>
[[gnu::always_inline]] inline const T* pixel_at(const Image<T>& in, Index x, Index y) {
  return in.data + y * in.row_stride + x * in.column_stride;
}

// ---- one pixel ---------------------------------------------------------------------------------

// Loads the four pixels around a position; a pixel outside the image gets the fill value in every
// channel.
template <class T>
struct Corners {
  const T* pixel[4];
  Index channel_stride[4];
};

template <class T>
[[gnu::always_inline]] inline Corners<T> corners(const Image<T>& in, Index x, Index y,
                                                 const T* fill) {
  Corners<T> found;
  for (int k = 0; k < 4; ++k) {
    const bool inside = has(in, x + k % 2, y + k / 2);
    found.pixel[k] = inside ? pixel_at(in, x + k % 2, y + k / 2) : fill;
    found.channel_stride[k] = inside ? in.channel_stride : 0;
  }
  return found;
}

// Computes one value per channel; kChannels is 0 for any number of them.
template <int kChannels>
[[gnu::always_inline]] inline void mix(const Image<Byte>& in, Index channel_stride, Index qx,
                                       Index qy, const Byte* fill, Byte* to) {
  const Corners<Byte> p = corners(in, qx >> kFractionBits, qy >> kFractionBits, fill);
  const int u = int(qx & (kOne - 1)), v = int(qy & (kOne - 1));
  for (Index c = 0; c < (kChannels ? kChannels : in.channels); ++c) {
    int x[4];
    for (int k = 0; k < 4; ++k) x[k] = p.pixel[k][c * p.channel_stride[k]];
    to[c * channel_stride] = pixel::mixed(x, u, v);
  }
}

template <int kChannels>
[[gnu::always_inline]] inline void mix(const Image<float>& in, Index channel_stride, double px,
                                       double py, const float* fill, float* to) {
  const double column = std::floor(px), row = std::floor(py);
  const Corners<float> p = corners(in, Index(column), Index(row), fill);
  const float u = float(px - column), v = float(py - row);
  for (Index c = 0; c < (kChannels ? kChannels : in.channels); ++c) {
    float x[4];
    for (int k = 0; k < 4; ++k) x[k] = p.pixel[k][c * p.channel_stride[k]];
    to[c * channel_stride] = pixel::mixed(x, u, v);
  }
}

template <int kChannels, class T>
[[gnu::always_inline]] inline void pick(const Image<T>& in, Index channel_stride, double px,
                                        double py, const T* fill, T* to) {
  const Index x = Index(std::floor(px + 0.5)), y = Index(std::floor(py + 0.5));
  const bool inside = has(in, x, y);
  const T* from = inside ? pixel_at(in, x, y) : fill;
  const Index step = inside ? in.channel_stride : 0;
  for (Index c = 0; c < (kChannels ? kChannels : in.channels); ++c) {
    to[c * channel_stride] = from[c * step];
  }
}

#ifdef __AVX2__

// Loads a pixel of three adjacent bytes; it reads eight bytes, which span three pixels.
[[gnu::always_inline]] inline __m128i mix_along(const Byte* from, __m128i weights, __m128i mask) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm_madd_epi16(_mm_shuffle_epi8(bytes, mask), weights);
}

[[gnu::always_inline]] inline void mix_rgb(const Byte* from, Index row_stride, int u, int v,
                                           __m128i mask, Byte* to) {
  const int one = int(kOne);
  const __m128i across = _mm_set1_epi32((one - u) | u << 16);
  const __m128i upper = mix_along(from, across, mask);
  const __m128i lower = mix_along(from + row_stride, across, mask);
  __m128i sum = _mm_add_epi32(_mm_mullo_epi32(upper, _mm_set1_epi32(one - v)),
                              _mm_mullo_epi32(lower, _mm_set1_epi32(v)));
  sum = _mm_add_epi32(sum, _mm_set1_epi32(1 << (2 * kFractionBits - 1)));
  sum = _mm_srli_epi32(sum, 2 * kFractionBits);
  const __m128i halves = _mm_packus_epi32(sum, sum);
  const std::uint32_t pixel = std::uint32_t(_mm_cvtsi128_si32(_mm_packus_epi16(halves, halves)));
  const std::uint16_t first = std::uint16_t(pixel);
  std::memcpy(to, &first, 2);
  to[2] = Byte(pixel >> 16);
}

bool is_rgb(const Image<Byte>& image) {
  return image.channels == 3 && image.channel_stride == 1 &&
         (image.column_stride == 3 || image.column_stride == -3);
}

// Finds the pixels for which the four neighbours, and the extra pixel that the load reads, are
// inside the image. The image may be mirrored.
struct RgbMixer {
  RgbMixer(const Image<Byte>& in, const Image<Byte>& out) {
    const bool mirrored = in.column_stride < 0;
    mask = mirrored ? _mm_setr_epi8(3, -1, 0, -1, 4, -1, 1, -1, 5, -1, 2, -1, -1, -1, -1, -1)
                    : _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    first = mirrored ? 1 : 0;
    columns = is_rgb(in) && out.channel_stride == 1 && in.width > 2 ? in.width - 2 : 0;
    rows = in.height - 1;
    data = in.data + first * in.column_stride;
    row_stride = in.row_stride;
    column_stride = in.column_stride;
  }

  [[gnu::always_inline]] bool reaches(Index qx, Index qy) const {
    return std::uint64_t((qx >> kFractionBits) - first) < std::uint64_t(columns) &&
           std::uint64_t(qy >> kFractionBits) < std::uint64_t(rows);
  }
  [[gnu::always_inline]] void run(Index qx, Index qy, Byte* to) const {
    const Index x = qx >> kFractionBits, y = qy >> kFractionBits;
    mix_rgb(data + y * row_stride + x * column_stride, row_stride, int(qx & (kOne - 1)),
            int(qy & (kOne - 1)), mask, to);
  }

  const Byte* data;
  Index first, columns, rows, row_stride, column_stride;
  __m128i mask;
};

#else

struct RgbMixer {
  RgbMixer(const Image<Byte>&, const Image<Byte>&) {}
  bool reaches(Index, Index) const { return false; }
  void run(Index, Index, Byte*) const {}
};

#endif

// ---- rows --------------------------------------------------------------------------------------

// Computes `count` pixels of row i, from column j on. The images are passed by value, so that the
// compiler knows that writing bytes does not change them.
template <int kChannels>
void bilinear_bytes(const Image<Byte> in, const Image<Byte> out, const double* m, Index j, Index i,
                    Index count, const Byte fill) {
  Index x[kPiece], y[kPiece];
  fixed_places(m, j, i, count, x);
  fixed_places(m + 3, j, i, count, y);
  const RgbMixer rgb(in, out);
  Byte* to = out.data + i * out.row_stride + j * out.column_stride;
  for (Index k = 0; k < count; ++k, to += out.column_stride) {
    if (kChannels == 3 && rgb.reaches(x[k], y[k])) {
      rgb.run(x[k], y[k], to);
    } else {
      mix<kChannels>(in, out.channel_stride, x[k], y[k], &fill, to);
    }
  }
}

// Does the same for bilinear floats, and for the nearest pixel of any type.
template <int kChannels, bool kBilinear, class T>
void from_places(const Image<T> in, const Image<T> out, const double* m, Index j, Index i,
                 Index count, const T fill) {
  double x[kPiece], y[kPiece];
  places(m, j, i, count, x);
  places(m + 3, j, i, count, y);
  T* to = out.data + i * out.row_stride + j * out.column_stride;
  for (Index k = 0; k < count; ++k, to += out.column_stride) {
    if constexpr (kBilinear) mix<kChannels>(in, out.channel_stride, x[k], y[k], &fill, to);
    if constexpr (!kBilinear) pick<kChannels>(in, out.channel_stride, x[k], y[k], &fill, to);
  }
}

template <int kChannels, class T>
void each_piece(const Image<T>& in, const Image<T>& out, const double* m, bool is_bilinear,
                T fill) {
  for (Index i = 0; i < out.height; ++i) {
    for (Index j = 0; j < out.width; j += kPiece) {
      const Index count = out.width - j < kPiece ? out.width - j : kPiece;
      if (!is_bilinear) {
        from_places<kChannels, false>(in, out, m, j, i, count, fill);
      } else if constexpr (sizeof(T) == 1) {
        bilinear_bytes<kChannels>(in, out, m, j, i, count, fill);
      } else {
        from_places<kChannels, true>(in, out, m, j, i, count, fill);
      }
    }
  }
}

template <class T>
void affine_image(const Image<T>& in, const Image<T>& out, const double* m, bool is_bilinear,
                  double fill) {
  const T filled = static_cast<T>(fill);
  if (in.channels == 3) return each_piece<3>(in, out, m, is_bilinear, filled);
  if (in.channels == 1) return each_piece<1>(in, out, m, is_bilinear, filled);
  each_piece<0>(in, out, m, is_bilinear, filled);
}

}  // namespace

void affine(const Image<Byte>& in, const Image<Byte>& out, const double m[6], bool bilinear,
            double fill) {
  affine_image(in, out, m, bilinear, fill);
}

void affine(const Image<float>& in, const Image<float>& out, const double m[6], bool bilinear,
            double fill) {
  affine_image(in, out, m, bilinear, fill);
}

}  // namespace needle::data::NEEDLE_ISA
