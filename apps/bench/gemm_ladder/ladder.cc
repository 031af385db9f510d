// The ladder of matrix products: runs every step, takes the best of several calls, and prints a
// line of JSON for each, after a line with the limits of one core. `gemm_ladder check` only
// compares every step with step 00; this runs as a test. With STEP ("03") only this step and the
// library's kernel run.
// Usage: gemm_ladder check [STEP] | gemm_ladder N THREADS [STEP]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/thread_pool.h"
#include "step.h"

namespace {

using ladder::Product;

// `bytes` is what the inner loop loads and stores per multiply-add, with AVX2.
struct Step {
  const char* name;
  void (*run)(const Product&);
  double bytes;
  bool threaded;
};

constexpr double kTileBytes = (6 + 16) * 4.0 / (6 * 16);  // a column of a, a row of b; 96 products
constexpr Step kSteps[] = {
    {"00 naive", ladder::naive, 8, false},
    {"01 loop order", ladder::loop_order, 12, false},
    {"02 cache blocks", ladder::cache_blocks, 12, false},
    {"03 vectors", ladder::vectors, 4 + 4.0 / 16, false},
    {"04 register tile", ladder::register_tile, kTileBytes, false},
    {"05 packed b", ladder::packed_b, kTileBytes, false},
    {"06 packed both", ladder::packed_both, kTileBytes, false},
    {"07 production", ladder::production, kTileBytes, false},
    {"08 threads", ladder::production, kTileBytes, true},
};

// Returns the likely mistake behind c[e], or "".
const char* cause_of(const Product& x, long e, double got, double tolerance) {
  const auto near = [=](double value) { return std::fabs(got - value) <= tolerance; };
  const long i = e / x.n, j = e % x.n;
  const auto product = [&](long row, long p) {
    return double(x.a[row * x.k + p]) * x.b[p * x.n + j];
  };
  double total = 0, columns = 0;
  for (long p = 0; p < x.k; ++p) {
    if (near(total)) return "the last products of the sum are missing";
    total += product(i, p), columns += double(x.a[p * x.m + i]) * x.b[p * x.n + j];
  }
  for (long p = 0; p < x.k; ++p) {
    total -= product(i, p);
    if (near(total)) return "the first products of the sum are missing";
  }
  if (near(columns)) return "a is read by columns; its rows lie side by side";
  for (long row = 0; row < x.m; ++row) {
    double other = 0;
    for (long p = 0; p < x.k; ++p) other += product(row, p);
    if (near(other)) return "this is the element of another row";
  }
  return "";
}

// Compares every step with step 00, within the rounding of k additions.
bool agree(long m, long n, long k, const char* wanted) {
  const std::vector<float> a = ladder::numbers(m * k, 1), b = ladder::numbers(k * n, 2);
  std::vector<float> want(static_cast<std::size_t>(m * n)), got(want.size());
  ladder::naive({m, n, k, a.data(), b.data(), want.data()});
  bool fine = true;
  for (const Step& step : kSteps) {
    if (!ladder::asked(step.name, wanted)) continue;
    for (float& v : got) v = NAN;
    step.run({m, n, k, a.data(), b.data(), got.data()});
    double error = 0;  // NaN as soon as one element is
    for (std::size_t e = 0; e < got.size(); ++e) {
      const double difference = std::fabs(double(got[e]) - want[e]);
      if (!(difference <= error) && !std::isnan(error)) error = difference;
    }
    if (error <= 1e-6 * double(k)) continue;
    std::printf("%s differs by %g for %ld x %ld x %ld\n", step.name, error, m, n, k);
    const Product x{m, n, k, a.data(), b.data(), got.data()};
    const double tolerance = 1e-6 * double(k);
    ladder::explain(got, want, tolerance,
                    [&](long e) { return cause_of(x, e, x.c[e], tolerance); });
    fine = false;
  }
  return fine;
}

int check(const char* wanted) {
  const long shapes[][3] = {{1, 1, 1},      {5, 7, 3},      {6, 16, 10},    {37, 50, 61},
                            {100, 97, 530}, {211, 300, 70}, {20, 1100, 300}};
  bool fine = true;
  for (const auto& [m, n, k] : shapes) fine = agree(m, n, k, wanted) && fine;
  return fine ? 0 : 1;
}

int run(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "check") == 0) {
    return check(count > 2 ? arguments[2] : nullptr);
  }
  const long n = count > 1 ? std::atol(arguments[1]) : 960;
  const int threads = count > 2 ? std::atoi(arguments[2]) : 2;
  const std::vector<float> a = ladder::numbers(n * n, 1), b = ladder::numbers(n * n, 2);
  std::vector<float> c(static_cast<std::size_t>(n * n));
  const char* wanted = count > 3 ? arguments[3] : nullptr;
  ladder::print_limits();
  for (const Step& step : kSteps) {
    if (!ladder::asked(step.name, wanted) && !ladder::asked(step.name, "07")) continue;
    needle::set_num_threads(step.threaded ? threads : 1);
    const double seconds =
        ladder::seconds_of([&] { step.run({n, n, n, a.data(), b.data(), c.data()}); });
    ladder::print_step(step.name, step.threaded ? threads : 1, seconds, 2 / step.bytes);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return ladder::status_of([&] { return run(count, arguments); });
}
