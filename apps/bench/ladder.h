// The common part of the ladders (gemm_ladder, conv_ladder): vectors, input numbers, and timing of
// steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../profiling/limits.h"
#include "core/not_implemented.h"

namespace ladder {

using limits::Vector;  // of the machine that this is compiled for
inline constexpr long kLanes = limits::kLanes;

inline Vector load(const float* p) {  // any alignment
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }

// Returns true if a step is to run: any step, or the one whose name starts with `wanted` ("03").
inline bool asked(const char* name, const char* wanted) {
  return wanted == nullptr || std::strncmp(name, wanted, std::strlen(wanted)) == 0;
}

// The exit status of a ladder's program; 3 for a step that is an open exercise of the course.
template <class F>
int status_of(F&& program) {
  try {
    return program();
  } catch (const needle::NotImplemented& open) {
    std::printf("NotImplementedError: %s\n", open.what());
    return 3;
  }
}

// Prints the first NaN, or else the first element that is not near `want`, and its likely cause (""
// if unknown).
template <class Cause>
void explain(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
             Cause&& cause) {
  const auto is_nan = [](float value) { return std::isnan(value); };
  const bool missing = std::any_of(got.begin(), got.end(), is_nan);
  for (std::size_t e = 0; e < got.size(); ++e) {
    if (missing ? !is_nan(got[e]) : std::fabs(double(got[e]) - want[e]) <= tolerance) continue;
    std::printf("element %zu is %g, wanted %g\ncause: %s\n", e, double(got[e]), double(want[e]),
                missing ? "NaN stands where nothing was written: write every element, and start "
                          "each sum at 0"
                        : cause(long(e)));
    return;
  }
}

inline long smaller(long a, long b) { return a < b ? a : b; }

inline std::vector<float> numbers(long n, unsigned seed) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) {
    seed = seed * 1664525u + 1013904223u;
    v = float(seed >> 8) / float(1 << 23) - 1;
  }
  return values;
}

// Returns the best of three or more calls in half a second; no call starts after ten
// seconds.
template <class F>
double seconds_of(F&& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30, total = 0;
  for (int calls = 0; calls < 3 || total < 0.5; ++calls) {
    const Clock::time_point start = Clock::now();
    run();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds < best) best = seconds;
    total += seconds;
    if (total > 10) break;
  }
  return best;
}

// Prints FLOP/s and, for arrays of several sizes, bytes per second of one core.
inline void print_limits() {
  const auto bytes = [](long each) { return 1e9 * limits::gbs(1, 0.05, each); };
  std::printf("{\"peak\": %.4g, \"first cache\": %.4g, \"second cache\": %.4g, \"memory\": %.4g}\n",
              1e9 * limits::best_gflops(1, 0.05), bytes(4L << 10), bytes(64L << 10),
              bytes(64L << 20));
}

inline void print_step(const char* name, int threads, double seconds, double intensity) {
  std::printf("{\"step\": \"%s\", \"threads\": %d, \"seconds\": %.6g, \"intensity\": %.4g}\n", name,
              threads, seconds, intensity);
  std::fflush(stdout);
}

}  // namespace ladder
