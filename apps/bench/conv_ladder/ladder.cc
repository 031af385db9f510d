// The ladder of convolutions: runs every step and prints a line of JSON for each, after a line with
// the limits of one core. `conv_ladder check` only compares every step with step 00; this runs as a
// test. With STEP ("03") only this step and the library's kernel run.
// Usage: conv_ladder check [STEP] | conv_ladder CHANNELS THREADS [STEP]
#include <cmath>
#include <cstdlib>

#include "core/thread_pool.h"
#include "step.h"

namespace {

using ladder::Convolution;

// `bytes` is what the inner loop loads and stores per multiply-add of the definition, with AVX2.
// One multiply-add of Winograd's tiles replaces 9/4 or 4 of them.
struct Step {
  const char* name;
  void (*run)(const Convolution&);
  double bytes;
  bool threaded;
};

constexpr double kTileBytes = (6 + 16) * 4.0 / (6 * 16);
constexpr Step kSteps[] = {
    {"00 naive", ladder::naive, 8, false},
    {"01 loop order", ladder::loop_order, 12, false},
    {"02 registers", ladder::registers, 4 + 4.0 / 16, false},
    {"03 pixel tile", ladder::pixel_tile, kTileBytes, false},
    {"04 packed weights", ladder::packed_weights, kTileBytes, false},
    {"05 Winograd", ladder::winograd, kTileBytes / 2.25, false},
    {"06 production", ladder::production, kTileBytes / 4, false},
    {"07 threads", ladder::production, kTileBytes / 4, true},
};

// Returns the likely mistake behind out[e], or "".
const char* cause_of(const Convolution& v, const std::vector<float>& want, long e, double got,
                     double tolerance) {
  const auto near = [=](double value) { return std::fabs(got - value) <= tolerance; };
  const long o = e % v.o, pixel = e / v.o % (v.h * v.w), image = e / (v.o * v.h * v.w);
  const auto tap = [&](long a, long b, long weight) {  // what one tap adds to the sum
    const long y = pixel / v.w + a - 1, x = pixel % v.w + b - 1;
    double sum = 0;
    if (y < 0 || y >= v.h || x < 0 || x >= v.w) return sum;
    for (long c = 0; c < v.c; ++c) {
      sum += double(v.x[((image * v.h + y) * v.w + x) * v.c + c]) *
             v.weight[(weight * v.c + c) * v.o + o];
    }
    return sum;
  };
  double sum = 0, exchanged = 0;
  for (long t = 0; t < 9; ++t) exchanged += tap(t / 3, t % 3, t % 3 * 3 + t / 3);
  if (near(exchanged)) return "rows and columns of the window are exchanged";
  for (long t = 0; t < 9; ++t) {
    if (near(sum)) return "the last taps of the window are missing";
    sum += tap(t / 3, t % 3, t);
  }
  for (long other = 0; other < v.h * v.w; ++other) {
    if (near(want[std::size_t((image * v.h * v.w + other) * v.o + o)])) {
      return "this is the value of another pixel";
    }
  }
  const long i = pixel / v.w, j = pixel % v.w;
  const bool border = i == 0 || j == 0 || i == v.h - 1 || j == v.w - 1;
  return border ? "this pixel is at the border: taps outside of the image count as 0" : "";
}

// Compares every step with step 00, within the rounding of the sums.
bool agree(long n, long h, long w, long c, long o, const char* wanted) {
  const std::vector<float> x = ladder::numbers(n * h * w * c, 1);
  const std::vector<float> weight = ladder::numbers(9 * c * o, 2);
  std::vector<float> want(static_cast<std::size_t>(n * h * w * o)), got(want.size());
  ladder::naive({n, h, w, c, o, x.data(), weight.data(), want.data()});
  bool fine = true;
  for (const Step& step : kSteps) {
    if (!ladder::asked(step.name, wanted)) continue;
    for (float& v : got) v = NAN;
    step.run({n, h, w, c, o, x.data(), weight.data(), got.data()});
    double error = 0;  // NaN as soon as one element is
    for (std::size_t e = 0; e < got.size(); ++e) {
      const double difference = std::fabs(double(got[e]) - want[e]);
      if (!(difference <= error) && !std::isnan(error)) error = difference;
    }
    if (error <= 1e-6 * double(9 * c)) continue;
    std::printf("%s differs by %g for (%ld, %ld, %ld, %ld) to %ld\n", step.name, error, n, h, w, c,
                o);
    const Convolution v{n, h, w, c, o, x.data(), weight.data(), got.data()};
    const double tolerance = 1e-6 * double(9 * c);
    ladder::explain(got, want, tolerance,
                    [&](long e) { return cause_of(v, want, e, v.out[e], tolerance); });
    fine = false;
  }
  return fine;
}

int check(const char* wanted) {
  const long shapes[][5] = {{1, 1, 1, 1, 1},    {1, 3, 7, 5, 16},    {2, 5, 4, 3, 33},
                            {2, 6, 13, 17, 40}, {1, 16, 16, 64, 64}, {3, 2, 8, 96, 32}};
  bool fine = true;
  for (const auto& [n, h, w, c, o] : shapes) fine = agree(n, h, w, c, o, wanted) && fine;
  return fine ? 0 : 1;
}

int run(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "check") == 0) {
    return check(count > 2 ? arguments[2] : nullptr);
  }
  const long images = 8, side = 16, channels = count > 1 ? std::atol(arguments[1]) : 64;
  const int threads = count > 2 ? std::atoi(arguments[2]) : 2;
  const std::vector<float> x = ladder::numbers(images * side * side * channels, 1);
  const std::vector<float> weight = ladder::numbers(9 * channels * channels, 2);
  std::vector<float> out(x.size());
  const Convolution v{images, side, side, channels, channels, x.data(), weight.data(), out.data()};
  const char* wanted = count > 3 ? arguments[3] : nullptr;
  ladder::print_limits();
  for (const Step& step : kSteps) {
    if (!ladder::asked(step.name, wanted) && !ladder::asked(step.name, "06")) continue;
    needle::set_num_threads(step.threaded ? threads : 1);
    const double seconds = ladder::seconds_of([&] { step.run(v); });
    ladder::print_step(step.name, step.threaded ? threads : 1, seconds, 2 / step.bytes);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  return ladder::status_of([&] { return run(count, arguments); });
}
