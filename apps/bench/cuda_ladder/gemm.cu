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
  // Four neighbours in a row, in one load if they are aligned.
  __device__ Four four(int row, int column) const {
    if (row < rows && column + 3 < columns && columns % 4 == 0) {
      return *reinterpret_cast<const Four*>(&data[long(row) * columns + column]);
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
  static constexpr Shape kShapes[] = {{1, 1, 1}, {37, 50, 61}, {130, 140, 20}, {20, 132, 100}};
  static constexpr int kSize = 4096, kColumns = 128;
  static Shape of_size(int n) { return {n, n, n}; }

  Shape shape_;
  OnDevice a, b, out;

  explicit Product(const Shape& s)
      : shape_(s),
        a(few_bits(long(s.m) * s.k, 1)),
        b(few_bits(long(s.k) * s.n, 2)),
        out(long(s.m) * s.n) {}
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
    const auto view = [](const OnDevice& memory, int rows, int columns) {
      needle::View v;
      v.data = memory.data();
      v.ndim = 2;
      v.shape[0] = rows, v.shape[1] = columns;
      v.strides[0] = columns, v.strides[1] = 1;
      return v;
    };
    const auto [m, n, k] = p.shape_;
    needle::cuda::matmul(view(p.a, m, k), view(p.b, k, n), view(p.out, m, n));
  }
};

}  // namespace
}  // namespace ladder

int main(int count, char** arguments) { return ladder::climb<ladder::Product>(count, arguments); }
