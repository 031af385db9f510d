// Compares the kernels that part 6 of the course empties (apps/course/parts) with plain loops, on
// the emulator. `course_cuda_test NAME` runs one test in each order of threads and prints the first
// failing case, one field per line; tests/exercises/test_exercises_cuda.py displays it.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/not_implemented.h"
#include "course_case.h"
#include "cuda/kernels.h"
#include "cuda/rows.h"

namespace needle::cuda {
namespace {

void test_one_hot() {
  constexpr std::int64_t kRows = 200, kColumns = 3;
  const Array<std::int64_t> ids({2 * kRows}, numbers<std::int64_t>(2 * kRows, 7, 5));
  const Array<float> out({kColumns, kRows});
  View index = ids.view;
  index.shape[0] = kRows, index.strides[0] = 2;
  one_hot(index, transposed(out.view));
  const auto hot = [&](std::int64_t step) {
    return filled(kRows * kColumns,
                  [&](std::int64_t i) { return ids[i % kRows * step] == i / kRows; });
  };
  expect("200 rows, 3 columns; out's strides 1 and 200, the index's 2; the index 0 4 3 2 1 0 ...",
         out.values(), hot(2), 0, {{"the index's stride is left out", hot(1)}});
}

__global__ void places_kernel(const __grid_constant__ Walk walk, std::int64_t* out) {
  const std::uint32_t i = blockIdx.x * kRowThreads + threadIdx.x;
  if (i >= walk.size) return;
  const auto offsets = locate<2>(walk, i);
  out[2 * i] = offsets.bytes[0], out[2 * i + 1] = offsets.bytes[1];
}

void test_locate() {
  for (const int ndim : {1, 3}) {
    const std::int64_t shape[] = {ndim == 1 ? 24 : 2, 3, 4};
    const std::int64_t strides[2][3] = {{48, 16, 4}, {-8, 800, 0}};
    Walk walk;
    walk.ndim = ndim;
    walk.size = 24;
    for (int i = 0; i < ndim; ++i) {
      walk.shape[i] = Divisor(shape[i]);
      for (int k = 0; k < 2; ++k) walk.strides[k][i] = strides[k][i];
    }
    const Array<std::int64_t> out({24, 2});
    launch("locate", 0, {1}, {kRowThreads}, places_kernel, walk, out.data());
    const auto offsets = [&](bool divided) {  // without axis 0, or of undivided indices
      return filled(48, [&](std::int64_t n) {
        std::int64_t rest = n / 2, offset = 0;
        for (int i = ndim - 1; i > 0; --i) {
          offset += (divided ? rest : n / 2) % shape[i] * strides[n % 2][i];
          rest /= shape[i];
        }
        return double(offset + (divided ? 0 : n / 2) * strides[n % 2][0]);
      });
    };
    // `last`: whether the last dimension varies fastest
    const auto places = [&](bool last) {
      return filled(48, [&](std::int64_t n) {
        std::int64_t rest = n / 2, offset = 0;
        for (int j = 0; j < ndim; ++j) {
          const int i = last ? ndim - 1 - j : j;
          offset += rest % shape[i] * strides[n % 2][i];
          rest /= shape[i];
        }
        return double(offset);
      });
    };
    expect(ndim == 1
               ? "shape (24), strides in bytes 48 and -8; the two offsets of each element"
               : "shape (2, 3, 4), strides (48, 16, 4) and (-8, 800, 0); both offsets of each",
           out.values(), places(true), 0,
           {{"the first dimension runs fastest; it should be the last", places(false)},
            {"the first dimension is left out", offsets(true)},
            {"the index stays as it is; divide it by each size", offsets(false)}});
  }
}

void test_gather() {
  constexpr std::int64_t kTable = 40, kColumns = 6, kRows = 2700;  // more than a launch has threads
  const Array<float> table({kColumns, kTable}, numbers<float>(kColumns * kTable, 1, 1 << 20));
  const Array<std::int64_t> index({kRows}, numbers<std::int64_t>(kRows, 17, kTable));
  const Array<float> out({kRows, kColumns});
  gather(transposed(table.view), index.view, out.view);
  const auto rows = [&](bool indexed, bool columns = true) {
    return filled(kRows * kColumns, [&](std::int64_t i) {
      return table[(columns ? i % kColumns * kTable : 0) + (indexed ? index[i / kColumns] : 0)];
    });
  };
  expect("2700 rows of 6 out of a table of 40, which lies transposed in memory", out.values(),
         rows(true), 0,
         {{"every row is the table's first: the index is not used", rows(false)},
          {"every column is the table's first: offsets.bytes[1] is left out", rows(true, false)}});
}

template <class T>
void transpose_of(std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  const Array<T> a({batch, columns, rows}, numbers<T>(batch * rows * columns, 1, 251));
  const Array<T> out({batch, rows, columns});
  copy(transposed(a.view), out.view);
  const Values want = filled(batch * rows * columns, [&](std::int64_t i) {
    const std::int64_t image = i / (rows * columns), row = i / columns % rows;
    return double(a[(image * columns + i % columns) * rows + row]);
  });
  expect("rows " + std::to_string(rows) + ", columns " + std::to_string(columns) + ", words of " +
             std::to_string(sizeof(T)) + " bytes; the input's columns lie side by side",
         out.values(), want, 0,
         {{"nothing is exchanged",
           filled(batch * rows * columns, [&](auto i) { return double(a[i]); })}});
}

void test_transpose() {
  transpose_of<float>(1, 32, 32);
  transpose_of<float>(2, 70, 45);
  transpose_of<std::int64_t>(1, 5, 40);
}

struct Parameter {
  Array<float> value, grad, first, second;

  explicit Parameter(std::int64_t size)
      : value({size}, numbers<float>(size, 1, 21)),
        grad({size}, numbers<float>(size, 3, 4)),
        first({size}, numbers<float>(size, 1, 5)),
        second({size}, numbers<float>(size, 1, 7)) {}
};

void test_sgd() {
  const std::int64_t sizes[] = {1, 700, 2053, 4, 5000};
  std::vector<std::unique_ptr<Parameter>> all;
  std::vector<View> values, grads, firsts;
  for (const std::int64_t size : sizes) {
    all.push_back(std::make_unique<Parameter>(size));
    values.push_back(all.back()->value.view);
    grads.push_back(all.back()->grad.view);
    firsts.push_back(all.back()->first.view);
  }
  sgd_step(values, grads, firsts, values, {0.5, 0.5, 0.25, 0.125, false});
  for (const auto& p : all) {
    const std::int64_t size = p->value.view.shape[0];
    const auto velocity = [&](std::int64_t i) {
      return 0.5 * p->first[i] + 0.75 * (p->grad[i] + 0.125 * p->value[i]);
    };
    const std::string given = "a parameter of " + std::to_string(size) + " out of five, in place; ";
    expect(given + "the new values", p->value.values(),
           filled(size, [&](auto i) { return p->value[i] - 0.5 * velocity(i); }), 1e-5,
           {{"the parameter is as before: its blocks did not find it",
             filled(size, [&](auto i) { return p->value[i]; })}});
    expect(given + "the velocity", p->first.values(), filled(size, velocity), 1e-5,
           {{"the velocity is not stored", filled(size, [&](auto i) { return p->first[i]; })}});
  }
}

void test_adam() {  // runs the exercise's kernel too, with both moments
  const Parameter p(300);
  adam_step({&p.value.view, 1}, {&p.grad.view, 1}, {&p.first.view, 1}, {&p.second.view, 1},
            {&p.value.view, 1}, {0.5, 0.5, 0.75, 0.5, 0, false, 1});
  const auto second = [&](std::int64_t i) {
    return 0.75 * p.second[i] + 0.25 * p.grad[i] * p.grad[i];
  };
  expect("Adam's second moment", p.second.values(), filled(300, second), 1e-5,
         {{"it is not stored", filled(300, [&](auto i) { return p.second[i]; })}});
  expect("Adam's new values", p.value.values(),
         filled(300,
                [&](auto i) {
                  const double first = 0.5 * p.first[i] + 0.5 * p.grad[i];
                  return p.value[i] - 0.5 * (first / 0.5) / (std::sqrt(second(i) / 0.25) + 0.5);
                }),
         1e-3);
}

// Two folds without a barrier between them; stores both results of each thread.
template <int kLanes>
__global__ void fold_kernel(const float* a, float* out) {
  NEEDLE_SHARED(warps, float[kRowThreads / kWarp]);
  const RowLanes<float, kLanes> lanes(warps);
  const unsigned i = blockIdx.x * kRowThreads + threadIdx.x;
  out[2 * i] = lanes.sum(a[i]);
  out[2 * i + 1] = lanes.fold(a[i], [](float x, float y) { return x < y ? y : x; });
}

template <int kLanes>
void fold_of() {
  constexpr std::int64_t kSize = 2 * kRowThreads;
  const Array<float> a({kSize}, numbers<float>(kSize, 7, 101));
  const Array<float> out({kSize, 2});
  launch("fold", 0, {2}, {kRowThreads}, fold_kernel<kLanes>, a.data(), out.data());
  const auto folded = [&](int lanes) {
    return filled(2 * kSize, [&](std::int64_t n) {
      double sum = 0, largest = 0;
      for (std::int64_t i = n / 2 / lanes * lanes; i < n / 2 / lanes * lanes + lanes; ++i) {
        sum += a[i];
        largest = std::max(largest, double(a[i]));
      }
      return n % 2 == 0 ? sum : largest;
    });
  };
  expect("2 blocks, " + std::to_string(kLanes) + " lanes a row; sum and maximum of each thread",
         out.values(), folded(kLanes), 0,
         {{"each warp has its own: warps do not meet in shared memory", folded(kWarp)},
          {"half of each warp is left out", folded(kWarp / 2)}});
}

void test_row_fold() {
  fold_of<kWarp>();
  fold_of<kRowThreads>();
}

void layer_norm_of(std::int64_t rows, std::int64_t n, double mean) {
  constexpr double kEps = 1e-5;
  std::vector<float> values = numbers<float>(rows * n, 37, 101);
  for (float& value : values) value = float(mean + value / 32);
  const Array<float> x({rows, n}, values), weight({n}, numbers<float>(n, 1, 3)),
      bias({n}, numbers<float>(n, 1, 4)), out({rows, n}), means({rows, 1}), vars({rows, 1});
  layer_norm(x.view, weight.view, bias.view, out.view, means.view, vars.view, kEps);
  Values want_mean(rows), want_var(rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < n; ++i) want_mean[r] += x[r * n + i] / double(n);
    for (std::int64_t i = 0; i < n; ++i) {
      want_var[r] += std::pow(x[r * n + i] - want_mean[r], 2) / double(n);
    }
  }
  const std::string given = std::to_string(rows) + " rows of " + std::to_string(n) + ", about " +
                            std::to_string(int(mean)) + "; ";
  const char* const digits = "the squares of large numbers lose their digits: sum deviations";
  const std::vector<Mistake> lost =
      mean > 0 ? std::vector<Mistake>{{digits, {}}} : std::vector<Mistake>{};
  std::vector<Mistake> unbiased = {
      {"divided by n - 1; the variance here is divided by n",
       filled(rows, [&](auto r) { return want_var[r] * double(n) / double(n - 1); })}};
  unbiased.insert(unbiased.end(), lost.begin(), lost.end());
  expect(given + "the means", means.values(), want_mean, 2e-4);
  expect(given + "the variances", vars.values(), want_var, 1e-3, unbiased);
  const auto normalised = [&](std::int64_t i) {
    return (x[i] - want_mean[i / n]) / std::sqrt(want_var[i / n] + kEps);
  };
  std::vector<Mistake> plain = {{"weight and bias are left out", filled(rows * n, normalised)}};
  plain.insert(plain.end(), lost.begin(), lost.end());
  expect(given + "out", out.values(),
         filled(rows * n, [&](auto i) { return normalised(i) * weight[i % n] + bias[i % n]; }),
         2e-3, plain);
}

void test_layer_norm() {
  layer_norm_of(9, 70, 0);
  layer_norm_of(2, 2500, 0);  // long rows: one block for each
  layer_norm_of(3, 5, 0);     // fewer elements than lanes
  layer_norm_of(9, 70, 1000);
}

void product_of(std::int64_t m, std::int64_t k, std::int64_t n, bool exchange) {
  const Array<float> a({exchange ? k : m, exchange ? m : k}, numbers<float>(m * k, 7, 13));
  const Array<float> b({k, n}, numbers<float>(k * n, 5, 11)), out({m, n});
  matmul(exchange ? transposed(a.view) : a.view, b.view, out.view);
  const auto product = [&](std::int64_t begin, std::int64_t end) {
    return filled(m * n, [&](std::int64_t i) {
      double sum = 0;
      for (std::int64_t p = begin; p < end; ++p) {
        sum += double(exchange ? a[p * m + i / n] : a[i / n * k + p]) * b[p * n + i % n];
      }
      return sum;
    });
  };
  const std::int64_t step = m > 100 ? 8 : 16, pieces = (k - 1) / step;
  expect("(" + std::to_string(m) + ", " + std::to_string(k) + ") @ (" + std::to_string(k) + ", " +
             std::to_string(n) + ")" + (exchange ? ", a transposed in memory" : ""),
         out.values(), product(0, k), 0,
         {{"the last piece of k is missing", product(0, pieces * step)},
          {"the first piece of k is missing", product(step, k)},
          {"only the first piece of k was multiplied", product(0, std::min(k, step))}});
}

void test_gemm_tile() {
  product_of(33, 5, 40, false);
  product_of(33, 70, 65, false);
  product_of(20, 32, 20, true);
  product_of(130, 20, 130, false);  // uses large tiles
}

// ---- running them ----

struct Test {
  const char* name;
  void (*run)();
};

constexpr Test kTests[] = {
    {"one_hot", test_one_hot},
    {"locate", test_locate},
    {"gather", test_gather},
    {"transpose", test_transpose},
    {"sgd", test_sgd},
    {"adam", test_adam},
    {"row_fold", test_row_fold},
    {"layer_norm", test_layer_norm},
    {"gemm_tile", test_gemm_tile},
};

// Forward order reveals all wrong values; the other orders reveal missing waits.
void run(const Test& test) {
  using cuda_on_cpu::Order;
  for (const Order order : {Order::kForward, Order::kReversed, Order::kShuffled}) {
    cuda_on_cpu::set_order(order);
    try {
      test.run();
    } catch (WrongAnswer& wrong) {
      if (order != Order::kForward) {
        wrong.cause = "right when threads run in their order, not in another: a barrier is missing";
      }
      throw;
    }
  }
  cuda_on_cpu::set_order(Order::kForward);
  cuda_on_cpu::watch_races(true);  // races that no order has revealed
  test.run();
}

int report(const Test& test) {
  try {
    run(test);
    return 0;
  } catch (const WrongAnswer& wrong) {
    std::printf("given: %s\nexpected: %s\ngot: %s\n", wrong.given.c_str(), wrong.expected.c_str(),
                wrong.got.c_str());
    if (!wrong.cause.empty()) std::printf("cause: %s\n", wrong.cause.c_str());
  } catch (const NotImplemented& open) {
    std::printf("NotImplementedError: %s\n", open.what());
  } catch (const std::exception& error) {
    std::printf("got: %s\n", error.what());
  }
  return 1;
}

}  // namespace
}  // namespace needle::cuda

int main(int count, char** arguments) {
  for (const auto& test : needle::cuda::kTests) {
    if (count == 2 && std::strcmp(arguments[1], test.name) == 0) return needle::cuda::report(test);
  }
  std::printf("usage: course_cuda_test NAME; names:");
  for (const auto& test : needle::cuda::kTests) std::printf(" %s", test.name);
  std::printf("\n");
  return 2;
}
