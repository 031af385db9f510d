// The problem of every step of the ladder: a 3 x 3 convolution with stride 1. Zero padding gives
// the result the size of the image. x is (n, h, w, c), weight is (3, 3, c, o) and out is (n, h, w,
// o), all dense.
#pragma once

#include "../ladder.h"

namespace ladder {

struct Convolution {
  long n, h, w, c, o;
  const float *x, *weight;
  float* out;
};

void naive(const Convolution& v);
void loop_order(const Convolution& v);
void registers(const Convolution& v);
void pixel_tile(const Convolution& v);
void packed_weights(const Convolution& v);
void winograd(const Convolution& v);
void production(const Convolution& v);

// Computes output channels [first, v.o) by the definition, for steps whose tiles do not divide
// their number.
inline void edge(const Convolution& v, long first) {
  for (long n = 0; n < v.n; ++n) {
    for (long i = 0; i < v.h; ++i) {
      for (long j = 0; j < v.w; ++j) {
        for (long o = first; o < v.o; ++o) {
          float sum = 0;
          for (long a = 0; a < 3; ++a) {
            for (long b = 0; b < 3; ++b) {
              const long y = i + a - 1, x = j + b - 1;
              if (y < 0 || y >= v.h || x < 0 || x >= v.w) continue;
              for (long c = 0; c < v.c; ++c) {
                sum += v.x[((n * v.h + y) * v.w + x) * v.c + c] *
                       v.weight[((a * 3 + b) * v.c + c) * v.o + o];
              }
            }
          }
          v.out[((n * v.h + i) * v.w + j) * v.o + o] = sum;
        }
      }
    }
  }
}

// Returns image n in a frame of zeros: pixel (i, j) is at (i + 1, j + 1) of `rows` rows of
// `columns` pixels.
inline std::vector<float> padded(const Convolution& v, long n, long rows, long columns) {
  std::vector<float> image(static_cast<std::size_t>(rows * columns * v.c));
  for (long i = 0; i < v.h; ++i) {
    std::memcpy(image.data() + ((i + 1) * columns + 1) * v.c, v.x + (n * v.h + i) * v.w * v.c,
                static_cast<std::size_t>(v.w * v.c) * sizeof(float));
  }
  return image;
}

constexpr long kPanel = 2 * kLanes;  // output channels of a tile
constexpr int kPixels = 6;           // and pixels

// Computes R rows of out, `out_step` apart, with kPanel columns each. An element is a sum over
// `runs` runs of `length` elements. The runs of row r start at a + offsets[run] + r * a_step;
// weights has rows of kPanel.
template <int R>
void packed_tile(long runs, const long* offsets, long length, const float* a, long a_step,
                 const float* weights, float* out, long out_step) {
  Vector sum[R][2] = {};
  for (long run = 0; run < runs; ++run) {
    const float* from = a + offsets[run];
    for (long e = 0; e < length; ++e, ++from, weights += kPanel) {
      const Vector left = load(weights), right = load(weights + kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        sum[r][0] += from[r * a_step] * left;
        sum[r][1] += from[r * a_step] * right;
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    store(out + r * out_step, sum[r][0]);
    store(out + r * out_step + kLanes, sum[r][1]);
  }
}

}  // namespace ladder
