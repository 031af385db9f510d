// Step 05: fewer multiplications. Winograd's F(2x2, 3x3) computes four outputs from 16 products per
// input channel instead of 36: Y = A^T ((G g G^T) * (B^T d B)) A, where d are the 4 x 4 input
// pixels of the tile (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016). For
// each of the 16 elements ("frequencies") the products over all tiles are one matrix product, with
// the packed tile of step 04. The transformations consist of additions on vectors of channels, once
// per tile and not once per pair of channels, so they pay off with many channels.
//
// It rounds slightly more than the definition. The remaining limit is memory: the transformed image
// is four times as large and is written to memory.
#include "step.h"

namespace {

using ladder::kLanes;
using ladder::Vector;

constexpr int kFrequencies = 16;

// One dimension of B^T d, G g and A^T m, for one channel or a vector of channels.
struct Input {
  template <class V>
  static void run(const V (&d)[4], V (&v)[4]) {
    v[0] = d[0] - d[2], v[1] = d[1] + d[2], v[2] = d[2] - d[1], v[3] = d[1] - d[3];
  }
};
struct Weight {
  template <class V>
  static void run(const V (&g)[3], V (&u)[4]) {
    u[0] = g[0], u[1] = (g[0] + g[1] + g[2]) / 2, u[2] = (g[0] - g[1] + g[2]) / 2, u[3] = g[2];
  }
};
struct Output {
  template <class V>
  static void run(const V (&m)[4], V (&y)[2]) {
    y[0] = m[0] + m[1] + m[2], y[1] = m[1] - m[2] - m[3];
  }
};

template <class V>
V get(const float* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Transforms columns, then rows. Element (i, j) of the input is at from + i * row + j * column;
// to(i, j, element) stores an output.
template <class V, class Step, int in, int out, class To>
void both_ways(const float* from, long row, long column, To to) {
  V half[out][in], line[in], result[out];
  for (int j = 0; j < in; ++j) {
    for (int i = 0; i < in; ++i) line[i] = get<V>(from + i * row + j * column);
    Step::run(line, result);
    for (int i = 0; i < out; ++i) half[i][j] = result[i];
  }
  for (int i = 0; i < out; ++i) {
    Step::run(half[i], result);
    for (int j = 0; j < out; ++j) to(i, j, result[j]);
  }
}

// Transforms a tile's channels from `corner` on to all frequencies, which are `step` apart.
template <class V>
void transform_input(const float* corner, long row, long column, float* to, long step) {
  both_ways<V, Input, 4, 4>(corner, row, column, [&](int i, int j, const V& v) {
    std::memcpy(to + (i * 4 + j) * step, &v, sizeof v);
  });
}

void transform_image(const ladder::Convolution& v, const float* image, long wide, long tiles,
                     float* seen) {
  const long row = (2 * wide + 2) * v.c;
  for (long t = 0; t < tiles; ++t, seen += v.c) {
    const float* corner = image + t / wide * 2 * row + t % wide * 2 * v.c;
    long c = 0;
    for (; c + kLanes <= v.c; c += kLanes) {
      transform_input<Vector>(corner + c, row, v.c, seen + c, tiles * v.c);
    }
    for (; c < v.c; ++c) transform_input<float>(corner + c, row, v.c, seen + c, tiles * v.c);
  }
}

// sums[frequency] = seen[frequency] @ weights[frequency]
void multiply(const ladder::Convolution& v, long tiles, long whole, const float* seen,
              const float* weights, float* sums) {
  using namespace ladder;
  const long first[1] = {0};
  for (long f = 0; f < kFrequencies; ++f) {
    for (long o = 0; o < whole; o += kPanel) {
      const float *a = seen + f * tiles * v.c, *b = weights + (f * whole + o) * v.c;
      float* out = sums + f * tiles * whole + o;
      long t = 0;
      for (; t + kPixels <= tiles; t += kPixels) {
        packed_tile<kPixels>(1, first, v.c, a + t * v.c, v.c, b, out + t * whole, whole);
      }
      for (; t < tiles; ++t) {
        packed_tile<1>(1, first, v.c, a + t * v.c, v.c, b, out + t * whole, whole);
      }
    }
  }
}

void transform_sums(const ladder::Convolution& v, long n, long wide, long tiles, long whole,
                    const float* sums) {
  const long step = tiles * whole;
  for (long t = 0; t < tiles; ++t, sums += whole) {
    for (long o = 0; o < whole; o += kLanes) {
      both_ways<Vector, Output, 4, 2>(sums + o, 4 * step, step, [&](int i, int j, const Vector& y) {
        const long row = t / wide * 2 + i, column = t % wide * 2 + j;
        if (row >= v.h || column >= v.w) return;
        ladder::store(v.out + ((n * v.h + row) * v.w + column) * v.o + o, y);
      });
    }
  }
}

}  // namespace

void ladder::winograd(const Convolution& v) {
  const long tall = (v.h + 1) / 2, wide = (v.w + 1) / 2, tiles = tall * wide;
  const long whole = v.o / kPanel * kPanel;
  std::vector<float> weights(static_cast<std::size_t>(kFrequencies * whole * v.c));
  for (long o = 0; o < whole; ++o) {
    for (long c = 0; c < v.c; ++c) {
      float* to = weights.data() + (o / kPanel * v.c + c) * kPanel + o % kPanel;
      both_ways<float, Weight, 3, 4>(
          v.weight + c * v.o + o, 3 * v.c * v.o, v.c * v.o,
          [&](int i, int j, float u) { to[(i * 4 + j) * whole * v.c] = u; });
    }
  }
  std::vector<float> seen(static_cast<std::size_t>(kFrequencies * tiles * v.c));
  std::vector<float> sums(static_cast<std::size_t>(kFrequencies * tiles * whole));
  for (long n = 0; n < v.n; ++n) {
    const std::vector<float> image = padded(v, n, 2 * tall + 2, 2 * wide + 2);
    transform_image(v, image.data(), wide, tiles, seen.data());
    multiply(v, tiles, whole, seen.data(), weights.data(), sums.data());
    transform_sums(v, n, wide, tiles, whole, sums.data());
  }
  edge(v, whole);
}
