// Compares the kernels that part 5 of the course empties (apps/course/parts) with plain loops in
// double, on every instruction set of this machine. tests/exercises selects tests by their names.
#include "core/elementwise_ops.h"
#include "expect.h"

namespace needle {
namespace {

using testing::compact;
using testing::transposed;

TEST(one_hot) {
  std::int64_t ids[10] = {2, 9, 0, 9, 7, 9, -1, 9, 1, 9};  // the view selects every second one
  testing::for_each_isa([&](const KernelTable& t) {
    float got[15];
    std::fill_n(got, 15, 93.0f);
    View index = compact(ids, {5});
    index.strides[0] = 2;
    t.one_hot(index, transposed(compact(got, {3, 5})));
    for (int row = 0; row < 5; ++row) {
      for (int c = 0; c < 3; ++c) {
        GIVEN(
            "indices 2, 0, 7, -1, 1, every second one of ten; row %d, column %d of 5 x 3 with "
            "strides 1, 5",
            row, c);
        const float value = got[c * 5 + row], want = ids[2 * row] == c ? 1 : 0;
        testing::likely(value == 93, "this element is not written: all but one of a row are 0");
        testing::likely(value != want && value == float(ids[row] == c),
                        "the index's stride is left out");
        testing::likely(value == 1 && (ids[2 * row] < 0 || ids[2 * row] > 2),
                        "an index outside of the row sets an element; such a row is all 0");
        EXPECT_NEAR(value, want, 0);
      }
    }
  });
}

constexpr const char* kMissing = "this element is not written";

TEST(unary) {
  constexpr int kRows = 5, kColumns = 37;
  float a[kRows * kColumns];
  for (int i = 0; i < kRows * kColumns; ++i) a[i] = float(i % 23) / 4 - 2;
  testing::for_each_isa([&](const KernelTable& t) {
    float got[kRows * kColumns];
    bool small[kRows * kColumns];
    std::fill_n(got, kRows * kColumns, 93.0f);
    const View in = compact(a, {kRows, kColumns});
    GIVEN("exp of 5 x 37 numbers side by side");
    t.unary(UnaryOp::exp, in, compact(got, {kRows, kColumns}));
    for (int i = 0; i < kRows * kColumns; ++i) {
      testing::likely(got[i] == 93, kMissing);
      EXPECT_NEAR(got[i], std::exp(double(a[i])), 1e-5);
    }
    GIVEN("isfinite of 5 x 37 floats, into bools");
    t.unary(UnaryOp::isfinite, in, compact(small, {kRows, kColumns}));
    for (int i = 0; i < kRows * kColumns; ++i) EXPECT_NEAR(small[i], 1, 0);
    // Selects every second column and reverses the rows.
    View some = compact(a + (kRows - 1) * kColumns, {kRows, kColumns / 2});
    some.strides[0] = -kColumns, some.strides[1] = 2;
    std::fill_n(got, kRows * kColumns, 93.0f);
    GIVEN("squares of a view with strides -37, 2");
    t.unary(UnaryOp::square, some, compact(got, {kRows, kColumns / 2}));
    for (int row = 0; row < kRows; ++row) {
      for (int c = 0; c < kColumns / 2; ++c) {
        const float* from = a + (kRows - 1 - row) * kColumns;
        const double x = from[2 * c], value = got[row * (kColumns / 2) + c];
        testing::likely(value == 93, kMissing);
        testing::likely(value != x * x && value == double(from[c]) * from[c],
                        "the input is read side by side: its stride is left out");
        EXPECT_NEAR(value, x * x, 1e-6);
      }
    }
  });
}

TEST(fold) {
  constexpr int kSize = 1500;
  float a[kSize];
  for (int i = 0; i < kSize; ++i) a[i] = float(i * 7919 % 1000) / 10 + 0.1f;
  for (const int n : {1, 3, 8, 31, 32, 33, 257, 1000, kSize}) {
    double sum = 0, highest = a[0];
    for (int i = 0; i < n; ++i) sum += a[i], highest = std::max(highest, double(a[i]));
    testing::for_each_isa([&](const KernelTable& t) {
      float got = 93;
      GIVEN("%d numbers in 0.1 ... 100, of which 0.1 and 92 come first", n);
      t.reduce(ReduceOp::sum, compact(a, {1, n}), compact(&got, {1, 1}));
      testing::likely(got == 0, "the numbers after the last whole group are left out");
      testing::likely(got > 1.0001 * sum, "some numbers are added twice");
      testing::likely(n > 30 && got < 0.6 * sum, "only some lanes of the vector are added up");
      EXPECT_NEAR(got, sum, 3e-7 * sum);
      t.reduce(ReduceOp::max, compact(a, {1, n}), compact(&got, {1, 1}));
      EXPECT_NEAR(got, highest, 0);
    });
  }
}

TEST(softmax) {
  constexpr int kRows = 3, kSize = 50;
  float a[kRows * kSize], probabilities[kRows * kSize], logs[kRows * kSize];
  for (int i = 0; i < kRows * kSize; ++i) {
    a[i] = float(i * 37 % 101) / 20 + (i / kSize == 1 ? 1e4f : 0.0f);
  }
  testing::for_each_isa([&](const KernelTable& t) {
    t.softmax(compact(a, {kRows, kSize}), compact(probabilities, {kRows, kSize}), 1);
    t.log_softmax(compact(a, {kRows, kSize}), compact(logs, {kRows, kSize}), 1);
    for (int row = 0; row < kRows; ++row) {
      const float* x = a + row * kSize;
      double total = 0;
      GIVEN("row %d of 3, 50 numbers in %s", row, row == 1 ? "10000 ... 10005" : "0 ... 5");
      for (int i = 0; i < kSize; ++i) total += std::exp(double(x[i]) - 1e4 * (row == 1));
      for (int i = 0; i < kSize; ++i) {
        const double want = double(x[i]) - 1e4 * (row == 1) - std::log(total);
        const double p = probabilities[row * kSize + i], log_p = logs[row * kSize + i];
        const double highest = *std::max_element(x, x + kSize);
        testing::likely(row == 1 && std::isnan(p),
                        "exp overflows: the row's maximum is to be subtracted before");
        testing::likely(std::fabs(p - std::exp(x[i] - highest)) < 1e-6,
                        "the exponentials are not divided by their sum");
        EXPECT_NEAR(p, std::exp(want), 1e-6);
        testing::likely(std::fabs(log_p - highest - want) < 1e-3,
                        "the logarithm lacks the maximum that exp was given without");
        EXPECT_NEAR(log_p, want, 2e-5);
      }
    }
  });
}

TEST(argmax) {
  constexpr int kRows = 9, kColumns = 70;
  float a[kRows * kColumns];
  for (int i = 0; i < kRows * kColumns; ++i) a[i] = float(std::min(i * 7919 % 13, 8));  // with ties
  a[4 * kColumns + 3] = a[6 * kColumns + 3] = NAN;
  testing::for_each_isa([&](const KernelTable& t) {
    std::int64_t got[kColumns];
    t.argmax(compact(a, {kRows, kColumns}), compact(got, {1, kColumns}), 0);
    for (int c = 0; c < kColumns; ++c) {
      std::int64_t want = 0;
      for (int row = 1; row < kRows; ++row) {
        if (a[row * kColumns + c] > a[want * kColumns + c]) want = row;
      }
      GIVEN("column %d of 70, nine numbers in 0 ... 8%s", c,
            c == 3 ? " with NaN at 4 and 6" : ", with equal ones");
      const auto at = [&](std::int64_t row) { return a[row * kColumns + c]; };
      const bool inside = c != 3 && got[c] != want && got[c] >= 0 && got[c] < kRows;
      testing::likely(inside && at(got[c]) == at(want), "of equal numbers the first one counts");
      testing::likely(inside && at(got[c]) < at(want), "the best number so far is not kept");
      testing::likely(c == 3 && got[c] != 4,
                      "NaN wins over every number, the first one over later ones");
      EXPECT_NEAR(got[c], c == 3 ? 4 : want, 0);
    }
  });
}

TEST(sgd) {
  constexpr int kSize = 21;
  for (const bool nesterov : {false, true}) {
    testing::for_each_isa([&](const KernelTable& t) {
      float param[kSize], grad[kSize], velocity[kSize], out[kSize];
      for (int i = 0; i < kSize; ++i) {
        param[i] = float(i) - 10, grad[i] = float(i % 4) / 3, velocity[i] = float(i % 5);
      }
      const View p = compact(param, {kSize}), g = compact(grad, {kSize}),
                 v = compact(velocity, {kSize}), o = compact(out, {kSize});
      t.sgd_step({&p, 1}, {&g, 1}, {&v, 1}, {&o, 1}, {0.5, 0.9, 0.25, 0.1, nesterov});
      for (int i = 0; i < kSize; ++i) {
        GIVEN(
            "param %d, grad %g, velocity %d; lr 0.5, momentum 0.9, dampening 0.25, weight_decay "
            "0.1%s",
            i - 10, double(grad[i]), i % 5, nesterov ? ", Nesterov" : "");
        const double step = grad[i] + 0.1 * param[i], fresh = 0.9 * (i % 5) + 0.75 * step;
        const double moved = velocity[i], old = 0.9 * (i % 5);
        const bool wrong = std::fabs(moved - fresh) > 1e-5;
        testing::likely(wrong && std::fabs(moved - old - step) < 1e-5, "dampening is left out");
        testing::likely(wrong && std::fabs(moved - old - 0.75 * grad[i]) < 1e-5,
                        "weight decay is left out");
        EXPECT_NEAR(moved, fresh, 1e-5);
        testing::likely(nesterov && std::fabs(step + 0.9 * fresh - fresh) > 1e-4 &&
                            std::fabs(out[i] - param[i] + 0.5 * fresh) < 1e-5,
                        "Nesterov's step is left out");
        EXPECT_NEAR(out[i], param[i] - 0.5 * (nesterov ? step + 0.9 * fresh : fresh), 1e-5);
      }
    });
  }
}

}  // namespace
}  // namespace needle
