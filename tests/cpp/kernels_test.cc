// The elementwise, reduce, copy and gather rows on every instruction set: layouts that are too many
// for the Python tests, limits of float functions, undefined behaviour.
#include <cstdint>
#include <limits>
#include <random>

#include "core/elementwise_ops.h"
#include "core/thread_pool.h"
#include "expect.h"

using namespace needle;
using namespace needle::testing;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> apply(const KernelTable& table, UnaryOp op, std::vector<float> in) {
  std::vector<float> out(in.size());
  const std::int64_t n = std::int64_t(in.size());
  table.unary(op, compact(in.data(), {n}), compact(out.data(), {n}));
  return out;
}

// Returns the largest error in units in the last place of the float32 result.
template <class F>
double worst_ulp(const KernelTable& table, UnaryOp op, float low, float high, F&& exact) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> in(100003);
  for (float& x : in) x = uniform(random);
  const std::vector<float> out = apply(table, op, in);
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double want = exact(double(in[i]));
    const float near = std::fabs(float(want));
    const double ulp = std::nextafter(near, kInf) - double(near);
    worst = std::max(worst, std::fabs(out[i] - want) / ulp);
  }
  return worst;
}

template <class T>
T reduce_all(const KernelTable& table, ReduceOp op, std::vector<T>& in) {
  T out{};
  table.reduce(op, compact(in.data(), {std::int64_t(in.size())}), compact(&out, {1}));
  return out;
}

}  // namespace

TEST(float_functions_are_within_two_ulp) {
  for_each_isa([](const KernelTable& t) {
    EXPECT(worst_ulp(t, UnaryOp::exp, -87, 88, [](double x) { return std::exp(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::exp, -103, -87, [](double x) { return std::exp(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::exp, -1, 1, [](double x) { return std::exp(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::log, 1e-38f, 2, [](double x) { return std::log(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::log, 0, 1e-38f, [](double x) { return std::log(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::log, 0.9f, 1.1f, [](double x) { return std::log(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::log, 1, 3e38f, [](double x) { return std::log(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::tanh, -1, 1, [](double x) { return std::tanh(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::tanh, -10, 10, [](double x) { return std::tanh(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::erf, -1, 1, [](double x) { return std::erf(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::erf, -6, 6, [](double x) { return std::erf(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::erf, -1e-3f, 1e-3f, [](double x) { return std::erf(x); }) <= 2);
    EXPECT(worst_ulp(t, UnaryOp::tanh, -1e-3f, 1e-3f, [](double x) { return std::tanh(x); }) <= 2);
  });
}

TEST(float_functions_are_right_at_their_limits) {
  for_each_isa([](const KernelTable& t) {
    // 17 elements: both the vector body and the scalar tail process special values.
    std::vector<float> in(17, kNan);
    for (UnaryOp op : {UnaryOp::exp, UnaryOp::log, UnaryOp::tanh, UnaryOp::erf}) {
      for (float y : apply(t, op, in)) EXPECT(std::isnan(y));
    }
    const auto e =
        apply(t, UnaryOp::exp, {kInf, -kInf, 0.0f, -0.0f, 88.72f, 89, 1e30f, -1e30f, -104});
    EXPECT(e[0] == kInf && e[1] == 0 && e[2] == 1 && e[3] == 1 && std::isfinite(e[4]));
    EXPECT(e[5] == kInf && e[6] == kInf && e[7] == 0 && e[8] == 0);
    const auto l = apply(t, UnaryOp::log, {kInf, 0.0f, -0.0f, -1, 1, -kInf, 1e-45f, 3.4028235e38f});
    EXPECT(l[0] == kInf && l[1] == -kInf && l[2] == -kInf && std::isnan(l[3]) && l[4] == 0);
    EXPECT(std::isnan(l[5]));
    EXPECT_NEAR(l[6], -103.27893, 1e-5);
    EXPECT_NEAR(l[7], 88.722839, 1e-5);
    const auto h = apply(t, UnaryOp::tanh, {kInf, -kInf, 0.0f, 30, -30, 1e-40f, -1e-45f, -0.0f});
    EXPECT(h[0] == 1 && h[1] == -1 && h[2] == 0 && h[3] == 1 && h[4] == -1 && h[5] == 1e-40f);
    const auto f = apply(t, UnaryOp::erf, {kInf, -kInf, 0.0f, 30, -30, -0.0f});
    EXPECT(f[0] == 1 && f[1] == -1 && f[2] == 0 && f[3] == 1 && f[4] == -1 && std::signbit(f[5]));
    EXPECT(h[6] == -1e-45f && std::signbit(h[7]));
  });
}

// Adding 0.1 repeatedly rounds the same way each time, the worst case: the error stays within two
// ulp, while a single running sum would be off by percents.
TEST(float32_sums_do_not_drift) {
  const double two_ulp = 2 * std::pow(2.0, -23);
  for_each_isa([&](const KernelTable& t) {
    std::vector<float> ones(5000001, 0.1f);
    const double total = 5000001 * double(0.1f), column = 1000000 * double(0.1f);
    EXPECT_NEAR(reduce_all(t, ReduceOp::sum, ones), total, two_ulp * total);
    std::vector<float> columns(1000000 * 4, 0.1f);
    float out[4];
    t.reduce(ReduceOp::sum, compact(columns.data(), {1000000, 4}), compact(out, {1, 4}));
    for (float y : out) EXPECT_NEAR(y, column, two_ulp * column);
    t.reduce(ReduceOp::sum, compact(columns.data(), {4, 1000000}), compact(out, {4, 1}));
    for (float y : out) EXPECT_NEAR(y, column, two_ulp * column);
  });
}

TEST(float64_sums_keep_what_rounding_drops) {
  for_each_isa([](const KernelTable& t) {
    std::vector<double> in(3 * 1024, 0);
    in[0] = 1e16, in[1024] = 1, in[2048] = -1e16;
    EXPECT(reduce_all(t, ReduceOp::sum, in) == 1);
    in[0] = std::numeric_limits<double>::infinity();
    EXPECT(reduce_all(t, ReduceOp::sum, in) == in[0]);
  });
}

TEST(reductions_do_not_depend_on_the_number_of_threads) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> in(300000);
  for (float& x : in) x = normal(random);
  for_each_isa([&](const KernelTable& t) {
    for (int layout = 0; layout < 3; ++layout) {
      const std::int64_t columns = layout == 0 ? 300000 : layout == 1 ? 3 : 1000;
      std::vector<float> first(columns), again(columns);
      const View a = compact(in.data(), {300000 / columns, columns});
      set_num_threads(1);
      t.reduce(ReduceOp::sum, a, compact(first.data(), {1, columns}));
      for (int threads : {2, 5}) {
        set_num_threads(threads);
        t.reduce(ReduceOp::sum, a, compact(again.data(), {1, columns}));
        EXPECT(first == again);
      }
    }
  });
}

TEST(nan_wins_in_max_and_min_wherever_it_stands) {
  for_each_isa([](const KernelTable& t) {
    for (std::size_t at : {0u, 1u, 40u, 99u, 129u}) {
      std::vector<float> in(130, 1.0f);
      in[at] = kNan;
      EXPECT(std::isnan(reduce_all(t, ReduceOp::max, in)));
      EXPECT(std::isnan(reduce_all(t, ReduceOp::min, in)));
    }
    std::vector<float> low(50, -kInf);
    EXPECT(reduce_all(t, ReduceOp::max, low) == -kInf);
  });
}

TEST(integers_wrap_and_divide_without_traps) {
  for_each_isa([](const KernelTable& t) {
    const std::int32_t low = std::numeric_limits<std::int32_t>::min();
    std::int32_t a[] = {low, low, 7, -7, 5, 46341}, b[] = {-1, 0, -2, 2, 0, 46341}, out[6];
    const View x = compact(a, {6}), y = compact(b, {6}), z = compact(out, {6});
    t.binary(BinaryOp::floor_divide, x, y, z);
    EXPECT(out[0] == low && out[1] == 0 && out[2] == -4 && out[3] == -4 && out[4] == 0);
    t.binary(BinaryOp::remainder, x, y, z);
    EXPECT(out[0] == 0 && out[1] == 0 && out[2] == -1 && out[3] == 1 && out[4] == 0);
    t.binary(BinaryOp::multiply, x, y, z);
    EXPECT(out[0] == low && out[5] == -2147479015);
    t.unary(UnaryOp::abs, x, z);
    EXPECT(out[0] == low && out[3] == 7);
    t.binary(BinaryOp::power, x, y, z);
    EXPECT(out[1] == 1 && out[2] == 0 && out[3] == 49);
    std::vector<std::int64_t> large(100, std::numeric_limits<std::int64_t>::max());
    EXPECT(reduce_all(t, ReduceOp::sum, large) == -100);
  });
}

TEST(float_casts_are_defined_everywhere) {
  for_each_isa([](const KernelTable& t) {
    float in[] = {kNan, kInf, -kInf, 2147483648.0f, -2147483648.0f, 3.99f, -3.99f, -1, 300};
    std::int32_t narrow[9];
    std::int64_t wide[9];
    std::uint8_t bytes[9];
    bool truth[9];
    t.copy(compact(in, {9}), compact(narrow, {9}));
    t.copy(compact(in, {9}), compact(wide, {9}));
    t.copy(compact(in, {9}), compact(bytes, {9}));
    t.copy(compact(in, {9}), compact(truth, {9}));
    EXPECT(narrow[0] == 0 && narrow[1] == 2147483647 && narrow[2] == -2147483647 - 1);
    EXPECT(narrow[3] == 2147483647 && narrow[4] == -2147483647 - 1);
    EXPECT(narrow[5] == 3 && narrow[6] == -3);
    EXPECT(wide[1] == std::numeric_limits<std::int64_t>::max() && wide[3] == 2147483648);
    EXPECT(bytes[5] == 3 && bytes[7] == 255 && bytes[8] == 44);
    EXPECT(truth[0] && truth[6]);
  });
}

TEST(transposed_copies_of_odd_sizes) {
  for_each_isa([](const KernelTable& t) {
    std::vector<float> in(71 * 37 * 3), out(in.size()), back(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = float(i);
    t.copy(transposed(compact(in.data(), {3, 37, 71})), compact(out.data(), {3, 71, 37}));
    EXPECT(out[1] == 71 && out[37] == 1 && out[71 * 37 + 1] == 71 * 37 + 71);
    t.copy(transposed(compact(out.data(), {3, 71, 37})), compact(back.data(), {3, 37, 71}));
    EXPECT(back == in);
  });
}

TEST(scattering_keeps_the_order_of_equal_indices) {
  for_each_isa([](const KernelTable& t) {
    set_num_threads(4);
    const std::int64_t n = 100, width = 3000;
    std::vector<float> rows(n * width), table(2 * width, 0.0f);
    std::vector<std::int64_t> index(n);
    for (std::int64_t i = 0; i < n; ++i) {
      index[i] = i % 2;
      for (std::int64_t j = 0; j < width; ++j) rows[i * width + j] = float(i);
    }
    const View a = compact(rows.data(), {n, width}), into = compact(table.data(), {2, width}),
               at = compact(index.data(), {n});
    t.scatter_add(a, at, into);
    EXPECT(table[0] == 2450 && table[2 * width - 1] == 2500);
    t.scatter(a, at, into);
    EXPECT(table[width - 1] == 98 && table[width] == 99);
    t.gather(into, at, a);
    EXPECT(rows[0] == 98 && rows[n * width - 1] == 99);
    index[7] = 2;
    EXPECT_THROWS(t.gather(into, at, a));
    index[7] = -1;
    EXPECT_THROWS(t.scatter(a, at, into));
  });
}

TEST(mismatched_views_are_refused) {
  for_each_isa([](const KernelTable& t) {
    float a[6] = {}, out[6];
    double other[6] = {};
    EXPECT_THROWS(t.copy(compact(a, {2, 3}), compact(out, {3, 2})));
    EXPECT_THROWS(t.binary(BinaryOp::add, compact(a, {6}), compact(other, {6}), compact(out, {6})));
    EXPECT_THROWS(t.unary(UnaryOp::isnan, compact(a, {6}), compact(out, {6})));
    EXPECT_THROWS(t.reduce(ReduceOp::any, compact(a, {6}), compact(out, {1})));
  });
  EXPECT_THROWS(cpu::select_isa("sse9"));
}
