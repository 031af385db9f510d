// Step 03: a tile of pixels. Six neighbours of a row share each load of the weights, and each value
// of a pixel is used for two vectors: 12 multiply-adds for 8 loads, and 12 sums in flight. This is
// the tile of the matrix product (gemm_ladder) with the left operand read from the image itself:
// the matrix of windows ("im2col"), nine times as large as the image, is never written.
//
// The remaining limit: the tile reads the weights with a stride of a whole row of output channels.
#include "step.h"

namespace {

template <int R>
void tile(const ladder::Convolution& v, const float* seen, long pitch, long o, float* out) {
  /// BEGIN SOLUTION [conv-pixel-tile]
  using namespace ladder;
  Vector sum[R][2] = {};
  const float* weight = v.weight + o;
  for (long a = 0; a < 3; ++a, seen += pitch) {
    for (long e = 0; e < 3 * v.c; ++e, weight += v.o) {
      const Vector left = load(weight), right = load(weight + kLanes);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        sum[r][0] += seen[r * v.c + e] * left;
        sum[r][1] += seen[r * v.c + e] * right;
      }
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
    store(out + r * v.o, sum[r][0]);
    store(out + r * v.o + kLanes, sum[r][1]);
  }
  /// END SOLUTION
}

}  // namespace

void ladder::pixel_tile(const Convolution& v) {
  const long pitch = (v.w + 2) * v.c, whole = v.o / kPanel * kPanel;
  for (long n = 0; n < v.n; ++n) {
    const std::vector<float> image = padded(v, n, v.h + 2, v.w + 2);
    for (long o = 0; o < whole; o += kPanel) {
      for (long i = 0; i < v.h; ++i) {
        const float* seen = image.data() + i * pitch;
        float* out = v.out + (n * v.h + i) * v.w * v.o + o;
        long j = 0;
        for (; j + kPixels <= v.w; j += kPixels) {
          tile<kPixels>(v, seen + j * v.c, pitch, o, out + j * v.o);
        }
        for (; j < v.w; ++j) tile<1>(v, seen + j * v.c, pitch, o, out + j * v.o);
      }
    }
  }
  edge(v, whole);
}
