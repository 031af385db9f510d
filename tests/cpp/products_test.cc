// matmul, conv2d and reductions over a batch on every instruction set: random small shapes with
// buffers of the exact size, so that a sanitizer detects each out-of-bounds access. tests/native
// compares values.
#include <cstdint>
#include <random>

#include "core/thread_pool.h"
#include "expect.h"

using namespace needle;
using namespace needle::testing;

namespace {

std::mt19937 generator(1);

std::int64_t pick(std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(generator);
}

// Small integers, so that every product and sum is exact.
template <class T>
std::vector<T> whole_numbers(std::int64_t n) {
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& v : values) v = T(pick(0, 6)) - T(3);
  return values;
}

template <class T>
void check_matmul(const KernelTable& t, std::int64_t m, std::int64_t n, std::int64_t k) {
  std::vector<T> a = whole_numbers<T>(m * k), b = whole_numbers<T>(k * n);
  std::vector<T> c(static_cast<std::size_t>(m * n), T(99));
  const bool across_a = pick(0, 1) != 0, across_b = pick(0, 1) != 0, across_c = pick(0, 1) != 0;
  const auto view = [](std::vector<T>& v, std::int64_t rows, std::int64_t columns, bool across) {
    return across ? transposed(compact(v.data(), {columns, rows}))
                  : compact(v.data(), {rows, columns});
  };
  const View av = view(a, m, k, across_a), bv = view(b, k, n, across_b);
  const View cv = view(c, m, n, across_c);
  t.matmul(av, bv, cv);
  const auto at = [](const View& v, std::int64_t i, std::int64_t j) {
    return data_of<T>(v)[i * v.strides[0] + j * v.strides[1]];
  };
  bool equal = true;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (std::int64_t p = 0; p < k; ++p) sum += at(av, i, p) * at(bv, p, j);
      equal = equal && at(cv, i, j) == sum;
    }
  }
  EXPECT(equal);
}

struct Convolution {
  std::int64_t n, h, w, c, o, kh, kw;
  Geometry geometry;

  std::int64_t rows() const {
    return (h + 2 * geometry.padding.h - geometry.dilation.h * (kh - 1) - 1) / geometry.stride.h +
           1;
  }
  std::int64_t columns() const {
    return (w + 2 * geometry.padding.w - geometry.dilation.w * (kw - 1) - 1) / geometry.stride.w +
           1;
  }
};

// Runs conv2d and its gradients in bounds; tests/native compares their values.
void run_convolution(const KernelTable& t, const Convolution& v) {
  const std::int64_t cg = v.c / v.geometry.groups;
  std::vector<float> x = whole_numbers<float>(v.n * v.h * v.w * v.c);
  std::vector<float> weight = whole_numbers<float>(v.kh * v.kw * cg * v.o);
  std::vector<float> grad = whole_numbers<float>(v.n * v.rows() * v.columns() * v.o);
  std::vector<float> out(grad.size()), dx(x.size()), dw(weight.size());
  const View x_view = compact(x.data(), {v.n, v.h, v.w, v.c});
  const View weight_view = compact(weight.data(), {v.kh, v.kw, cg, v.o});
  const View grad_view = compact(grad.data(), {v.n, v.rows(), v.columns(), v.o});
  t.conv2d(x_view, weight_view, compact(out.data(), {v.n, v.rows(), v.columns(), v.o}), v.geometry,
           {});
  t.conv2d_input_grad(grad_view, weight_view, compact(dx.data(), {v.n, v.h, v.w, v.c}), v.geometry);
  t.conv2d_weight_grad(grad_view, x_view, compact(dw.data(), {v.kh, v.kw, cg, v.o}), v.geometry);
}

}  // namespace

TEST(products_of_random_shapes_are_exact) {
  for_each_isa([](const KernelTable& t) {
    for (int i = 0; i < 60; ++i) {
      const std::int64_t m = pick(1, 70), n = pick(1, 70), k = pick(0, 70);
      check_matmul<float>(t, m, n, k);
      check_matmul<double>(t, m, n, k);
      check_matmul<std::int32_t>(t, m, n, k);
      check_matmul<std::int64_t>(t, m, n, k);
    }
    check_matmul<float>(t, 1, 300, 400);
    check_matmul<float>(t, 300, 1, 400);
    check_matmul<float>(t, 201, 303, 517);
    for (std::int64_t rows : {8, 14, 23}) check_matmul<float>(t, rows, 9, 8300);
  });
}

TEST(random_convolutions_stay_in_bounds) {
  for_each_isa([](const KernelTable& t) {
    for (int i = 0; i < 60; ++i) {
      Convolution v{pick(0, 5), pick(1, 9), pick(1, 9), 0, 0, pick(1, 5), pick(1, 5), {}};
      v.geometry = {
          {pick(1, 3), pick(1, 3)}, {pick(0, 2), pick(0, 2)}, {pick(1, 2), pick(1, 2)}, 1};
      v.geometry.groups = pick(1, 3);
      v.c = v.geometry.groups * pick(1, 12);
      v.o = v.geometry.groups * pick(1, 20);
      if (i % 5 == 0) v.c = v.o = v.geometry.groups = pick(1, 70);  // depthwise
      const std::int64_t high = v.h + 2 * v.geometry.padding.h - v.geometry.dilation.h * (v.kh - 1);
      const std::int64_t wide = v.w + 2 * v.geometry.padding.w - v.geometry.dilation.w * (v.kw - 1);
      if (high < 1 || wide < 1) continue;
      run_convolution(t, v);
    }
  });
}

TEST(pooling_gradients_stay_in_bounds) {
  for_each_isa([](const KernelTable& t) {
    for (std::int64_t channels : {1, 3, 64, 67}) {
      std::vector<float> x = whole_numbers<float>(2 * 5 * 6 * channels), dx(x.size(), 99);
      std::vector<float> out(static_cast<std::size_t>(2 * 3 * 3 * channels)), ones(out.size(), 1);
      const Pool2dParams params{{3, 3}, {2, 2}, {1, 1}};
      const View x_view = compact(x.data(), {2, 5, 6, channels});
      const View dx_view = compact(dx.data(), {2, 5, 6, channels});
      const View ones_view = compact(ones.data(), {2, 3, 3, channels});
      t.max_pool2d(x_view, compact(out.data(), {2, 3, 3, channels}), params);
      t.max_pool2d_grad(ones_view, x_view, dx_view, params);
    }
  });
}

TEST(norms_and_losses_of_random_shapes_stay_in_bounds) {
  for_each_isa([](const KernelTable& t) {
    for (std::int64_t n : {1, 2, 33}) {
      for (std::int64_t c : {1, 7, 16, 67}) {
        std::vector<float> x = whole_numbers<float>(n * c), out(x.size()), ones(c, 1.0f);
        std::vector<float> mean(c), var(c), dw(c), db(c), loss(n), weights(n, 1.0f);
        std::vector<std::int64_t> labels(n, c - 1), places(n);
        const View xv = compact(x.data(), {n, c}), ov = compact(out.data(), {n, c});
        const View one = compact(ones.data(), {c});
        const View mv = compact(mean.data(), {c}), vv = compact(var.data(), {c});
        t.batch_norm(xv, one, one, ov, mv, vv, 1e-5, {});
        t.batch_norm_grad(xv, xv, one, mv, vv, ov, compact(dw.data(), {c}), compact(db.data(), {c}),
                          1e-5, {});
        t.cross_entropy_grad(compact(weights.data(), {n}), xv, compact(labels.data(), {n}), ov,
                             0.1);
        t.cross_entropy(xv, compact(labels.data(), {n}), compact(loss.data(), {n}), 0.1);
        t.argmax(xv, compact(places.data(), {n, 1}), 1);
      }
    }
  });
}
