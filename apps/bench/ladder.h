// The common part of the ladders (gemm_ladder, conv_ladder): vector types, input numbers, and
// timing of steps and of the machine's limits.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/not_implemented.h"

namespace ladder {

// The vector type of the machine that this is compiled for.
#if defined(__AVX512F__)
inline constexpr long kLanes = 16;
#elif defined(__AVX__)
inline constexpr long kLanes = 8;
#else
inline constexpr long kLanes = 4;
#endif
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

inline Vector load(const float* p) {  // any alignment
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }

// Returns true if a step is to run: all are, or the one whose name starts with `wanted` ("03").
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

// Prints the first NaN, or else the first element that is not near `want`, and the likely cause
// ("" if it is unknown).
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

// Returns the best of at least three calls within half a second; no further call after ten seconds.
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

// Returns FLOP/s of one core: twelve chains of fused multiply-adds without loads or stores. The
// samples are short, so that one of them is likely undisturbed.
inline double peak() {
  constexpr int kChains = 12;
  constexpr long kRepeats = 100000;
  static volatile float start = 1e-4f;
  Vector sums[kChains], factor = Vector{} + (1 - start);
  for (int i = 0; i < kChains; ++i) sums[i] = Vector{} + start * float(i);
  const double seconds = seconds_of([&] {
    for (long r = 0; r < kRepeats; ++r) {
#pragma GCC unroll 12
      for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + factor;
    }
    for (int i = 0; i < kChains; ++i) start = start + sums[i][0] * 0;
  });
  return 2.0 * kLanes * kChains * kRepeats / seconds;
}

// Returns bytes per second that one core moves in a[i] = b[i] + s * c[i] on `bytes` in total.
inline double bandwidth(long bytes) {
  const long n = bytes / 12, repeats = 1 + (1L << 20) / bytes;
  std::vector<float> a = numbers(n, 1), b = numbers(n, 2), c = numbers(n, 3);
  const double seconds = seconds_of([&] {
    for (long r = 0; r < repeats; ++r) {
      const float s = 1 + a[0] * 0;
      float* to = a.data();
      const float *from = b.data(), *factor = c.data();
      for (long i = 0; i < n; ++i) to[i] = from[i] + s * factor[i];
    }
  });
  return 12.0 * double(n) * double(repeats) / seconds;
}

inline void print_limits() {
  std::printf("{\"peak\": %.4g, \"first cache\": %.4g, \"second cache\": %.4g, \"memory\": %.4g}\n",
              peak(), bandwidth(12L << 10), bandwidth(192L << 10), bandwidth(192L << 20));
}

inline void print_step(const char* name, int threads, double seconds, double intensity) {
  std::printf("{\"step\": \"%s\", \"threads\": %d, \"seconds\": %.6g, \"intensity\": %.4g}\n", name,
              threads, seconds, intensity);
  std::fflush(stdout);
}

}  // namespace ladder
