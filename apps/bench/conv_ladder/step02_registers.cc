// Step 02: sums in registers, and zeros around the image. Two vectors of output channels of a pixel
// stay in registers for the whole sum and are stored once. The image is copied into a frame of
// zeros first: no bounds are checked, and a kernel row reads three pixels with all their channels
// as one contiguous run.
//
// Two sums at a time are too few to hide the latency of an addition, four cycles, and each weight
// is loaded for one pixel only.
#include "step.h"

void ladder::registers(const Convolution& v) {
  /// BEGIN SOLUTION [conv-registers]
  const long pitch = (v.w + 2) * v.c, whole = v.o / kPanel * kPanel;
  for (long n = 0; n < v.n; ++n) {
    const std::vector<float> image = padded(v, n, v.h + 2, v.w + 2);
    for (long pixel = 0; pixel < v.h * v.w; ++pixel) {
      const float* seen = image.data() + pixel / v.w * pitch + pixel % v.w * v.c;
      for (long o = 0; o < whole; o += kPanel) {
        Vector left = {}, right = {};
        const float* weight = v.weight + o;
        for (long a = 0; a < 3; ++a) {
          for (long e = 0; e < 3 * v.c; ++e, weight += v.o) {
            left += seen[a * pitch + e] * load(weight);
            right += seen[a * pitch + e] * load(weight + kLanes);
          }
        }
        float* out = v.out + (n * v.h * v.w + pixel) * v.o + o;
        store(out, left);
        store(out + kLanes, right);
      }
    }
  }
  edge(v, whole);
  /// END SOLUTION
}
