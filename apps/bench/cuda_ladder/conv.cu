// The ladder of convolutions on a GPU, 3 x 3 with stride 1 and zero padding, as on the CPU: x (n,
// h, w, c), weight (3, 3, c, o), out (n, h, w, o). The steps are those of the matrix product: rows
// are output pixels, columns are output channels, and k runs through the channels of one tap after
// the other ("implicit GEMM"). The elements of a are read from the images, and no matrix is ever
// written.
#include "ladder.h"

namespace ladder {
namespace {

struct Sizes {
  int n, h, w, c, o;
};

struct Windows {
  const float* x;
  Sizes s;

  // Returns the address of pixel `row` at tap and channel k; null outside.
  __device__ const float* place(int row, int k) const {
    const int tap = k / s.c, j = row % s.w, i = row / s.w % s.h, n = row / s.w / s.h;
    const int y = i + tap / 3 - 1, across = j + tap % 3 - 1;
    const bool inside = n < s.n && tap < 9 && y >= 0 && y < s.h && across >= 0 && across < s.w;
    return inside ? x + (long(n * s.h + y) * s.w + across) * s.c + k % s.c : nullptr;
  }
  __device__ float at(int row, int k) const {
    const float* const from = place(row, k);
    return from != nullptr ? *from : 0;
  }
  // Returns four neighbours along k. They are channels of one tap if the number of channels is a
  // multiple of four.
  __device__ Float4 four(int row, int k) const {
    if (s.c % 4 == 0) {
      const float* const from = place(row, k);
      return from != nullptr ? *reinterpret_cast<const Float4*>(from) : Float4{};
    }
    return {{at(row, k), at(row, k + 1), at(row, k + 2), at(row, k + 3)}};
  }
};

struct Weights {
  const float* weight;
  int k, o;

  __device__ float at(int depth, int column) const {
    return depth < k && column < o ? weight[long(depth) * o + column] : 0;
  }
  __device__ Float4 four(int depth, int column) const {
    if (depth < k && column + 3 < o && o % 4 == 0) {
      return *reinterpret_cast<const Float4*>(&weight[long(depth) * o + column]);
    }
    return {
        {at(depth, column), at(depth, column + 1), at(depth, column + 2), at(depth, column + 3)}};
  }
};

struct Pixels {
  float* out;
  int pixels, o;

  __device__ void put(int row, int column, float value) const {
    if (row < pixels && column < o) out[long(row) * o + column] = value;
  }
};

struct Convolution {
  static constexpr Sizes kShapes[] = {
      {1, 3, 7, 5, 6}, {2, 6, 13, 4, 40}, {1, 16, 16, 12, 64}, {1, 16, 16, 32, 64}};
  static constexpr int kSize = 1024, kColumns = 64;
  static Sizes of_size(int channels) { return {8, 16, 16, channels, channels}; }

  Sizes s;
  OnDevice x, weight, out;
  OnDevice stored_x, stored_weight, stored_out;  // in bfloat16
  OnDevice moments;                              // of every 64 pixels of stored_out

  explicit Convolution(const Sizes& sizes)
      : s(sizes),
        x(few_bits(long(s.n) * s.h * s.w * s.c, 1)),
        weight(few_bits(9L * s.c * s.o, 2)),
        out(long(s.n) * s.h * s.w * s.o),
        stored_x(long(s.n) * s.h * s.w * s.c),
        stored_weight(9L * s.c * s.o),
        stored_out(long(s.n) * s.h * s.w * s.o),
        moments(parts() * 2 * s.o) {
    convert(x, kFloat32, stored_x, kStored, long(s.n) * s.h * s.w * s.c);
    convert(weight, kFloat32, stored_weight, kStored, 9L * s.c * s.o);
  }
  long parts() const { return (long(s.n) * s.h * s.w + 63) / 64; }
  Shape shape() const { return {s.n * s.h * s.w, s.o, 9 * s.c}; }
  std::string name() const {
    return std::to_string(s.n) + " images of " + std::to_string(s.h) + " x " + std::to_string(s.w) +
           ", " + std::to_string(s.c) + " to " + std::to_string(s.o) + " channels";
  }

  template <class Step>
  static void step(const Convolution& v) {
    launch_step<Step>(Windows{v.x.data(), v.s}, Weights{v.weight.data(), 9 * v.s.c, v.s.o},
                      Pixels{v.out.data(), v.shape().m, v.s.o}, v.shape());
  }
  // Calls a kernel of the library with x, weight, out and its further arguments.
  template <class Kernel, class... More>
  static void call(Kernel kernel, const Sizes& s, needle::DType dtype, const OnDevice& x,
                   const OnDevice& weight, const OnDevice& out, const More&... more) {
    kernel(view_of(x, dtype, {s.n, s.h, s.w, s.c}), view_of(weight, dtype, {3, 3, s.c, s.o}),
           view_of(out, dtype, {s.n, s.h, s.w, s.o}), {{1, 1}, {1, 1}, {1, 1}, 1}, {}, more...);
  }
  static void production(const Convolution& v) {
    call(needle::cuda::conv2d, v.s, kFloat32, v.x, v.weight, v.out);
  }
  static void stored(const Convolution& v) {
    call(needle::cuda::conv2d, v.s, kStored, v.stored_x, v.stored_weight, v.stored_out);
  }
  static void with_moments(const Convolution& v) {
    call(needle::cuda::conv2d_moments, v.s, kStored, v.stored_x, v.stored_weight, v.stored_out,
         view_of(v.moments, kFloat32, {v.parts(), 2, v.s.o}));
  }
  static void finish(const Convolution& v) {
    convert(v.stored_out, kStored, v.out, kFloat32, long(v.shape().m) * v.s.o);
  }
};

}  // namespace
}  // namespace ladder

int main(int count, char** arguments) {
  return ladder::climb<ladder::Convolution>(count, arguments);
}
