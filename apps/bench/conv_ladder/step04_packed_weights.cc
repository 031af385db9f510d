// Step 04: packed weights. The two vectors of output channels of a tile are copied, for all taps
// and input channels, into a panel that is read sequentially: page after page instead of a new page
// at each step, and without lines that evict each other from the cache.
//
// This is as fast as the definition's arithmetic allows. The next step reduces the arithmetic.
#include "step.h"

void ladder::packed_weights(const Convolution& v) {
  /// BEGIN SOLUTION [conv-packed-weights]
  const long pitch = (v.w + 2) * v.c, whole = v.o / kPanel * kPanel, depth = 9 * v.c;
  const long rows[3] = {0, pitch, 2 * pitch};
  std::vector<float> panels(static_cast<std::size_t>(whole * depth));
  for (long o = 0; o < whole; ++o) {
    for (long k = 0; k < depth; ++k) {
      panels[(o / kPanel * depth + k) * kPanel + o % kPanel] = v.weight[k * v.o + o];
    }
  }
  for (long n = 0; n < v.n; ++n) {
    const std::vector<float> image = padded(v, n, v.h + 2, v.w + 2);
    for (long o = 0; o < whole; o += kPanel) {
      const float* panel = panels.data() + o * depth;
      for (long i = 0; i < v.h; ++i) {
        const float* seen = image.data() + i * pitch;
        float* out = v.out + (n * v.h + i) * v.w * v.o + o;
        long j = 0;
        for (; j + kPixels <= v.w; j += kPixels) {
          packed_tile<kPixels>(3, rows, 3 * v.c, seen + j * v.c, v.c, panel, out + j * v.o, v.o);
        }
        for (; j < v.w; ++j) {
          packed_tile<1>(3, rows, 3 * v.c, seen + j * v.c, v.c, panel, out + j * v.o, v.o);
        }
      }
    }
  }
  edge(v, whole);
  /// END SOLUTION
}
