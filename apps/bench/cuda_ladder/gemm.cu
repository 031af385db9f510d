// The ladder of matrix products on a GPU: c (m x n) = a (m x k) @ b (k x n), row-major and dense.
#include "ladder.h"

namespace ladder {
namespace {

struct Matrix {
  const float* data;
  int rows, columns;

  __device__ float at(int row, int column) const {
    return row < rows && column < columns ? data[long(row) * columns + column] : 0;
  }
  // Returns four neighbours of a row. One load suffices if they are aligned.
  __device__ Float4 four(int row, int column) const {
    if (row < rows && column + 3 < columns && columns % 4 == 0) {
      return *reinterpret_cast<const Float4*>(&data[long(row) * columns + column]);
    }
    return {{at(row, column), at(row, column + 1), at(row, column + 2), at(row, column + 3)}};
  }
};

struct Result {
  float* data;
  int rows, columns;

  __device__ void put(int row, int column, float value) const {
    if (row < rows && column < columns) data[long(row) * columns + column] = value;
  }
};

struct Product {
  static constexpr Shape kShapes[] = {
      {1, 1, 1}, {37, 50, 61}, {130, 140, 20}, {20, 132, 100}, {256, 128, 64}};
  static constexpr int kSize = 4096, kColumns = 128;
  static Shape of_size(int n) { return {n, n, n}; }

  Shape shape_;
  OnDevice a, b, out;
  OnDevice stored_a, stored_b, stored_out;  // in bfloat16

  explicit Product(const Shape& s)
      : shape_(s),
        a(few_bits(long(s.m) * s.k, 1)),
        b(few_bits(long(s.k) * s.n, 2)),
        out(long(s.m) * s.n),
        stored_a(long(s.m) * s.k),
        stored_b(long(s.k) * s.n),
        stored_out(long(s.m) * s.n) {
    convert(a, kFloat32, stored_a, kStored, long(s.m) * s.k);
    convert(b, kFloat32, stored_b, kStored, long(s.k) * s.n);
  }
  const Shape& shape() const { return shape_; }
  std::string name() const {
    return std::to_string(shape_.m) + " x " + std::to_string(shape_.n) + " x " +
           std::to_string(shape_.k);
  }

  template <class Step>
  static void step(const Product& p) {
    const auto [m, n, k] = p.shape_;
    launch_step<Step>(Matrix{p.a.data(), m, k}, Matrix{p.b.data(), k, n},
                      Result{p.out.data(), m, n}, p.shape_);
  }
  static void production(const Product& p) {
    const auto [m, n, k] = p.shape_;
    needle::cuda::matmul(view_of(p.a, kFloat32, {m, k}), view_of(p.b, kFloat32, {k, n}),
                         view_of(p.out, kFloat32, {m, n}));
  }
  static void stored(const Product& p) {
    const auto [m, n, k] = p.shape_;
    needle::cuda::matmul(view_of(p.stored_a, kStored, {m, k}), view_of(p.stored_b, kStored, {k, n}),
                         view_of(p.stored_out, kStored, {m, n}));
  }
  static constexpr void (*with_moments)(const Product&) = nullptr;
  static void finish(const Product& p) {
    convert(p.stored_out, kStored, p.out, kFloat32, long(p.shape_.m) * p.shape_.n);
  }
};

}  // namespace
}  // namespace ladder

int main(int count, char** arguments) { return ladder::climb<ladder::Product>(count, arguments); }
