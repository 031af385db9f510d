// The limits of this machine: fused multiply-adds per second, and bytes per second of a[i] = b[i] +
// s * c[i]. Included by limits.cc and by the ladders (apps/bench/ladder.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace limits {

#if defined(__AVX512F__)
inline constexpr int kBytes = 64;
#elif defined(__AVX__)
inline constexpr int kBytes = 32;
#else
inline constexpr int kBytes = 16;
#endif
inline constexpr int kLanes = kBytes / 4;
// Independent sums: enough to hide the latency of two FMA units, and few enough to stay in
// registers.
inline constexpr int kChains = 12;
typedef float Vector __attribute__((vector_size(kBytes)));

// A single thread is timed by its processor time, which other programs do not lengthen; several
// threads must run at once, so wall-clock time counts.
inline double now(int threads) {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  if (threads == 1) {
    timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
  }
#endif
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Runs work(thread, repeats) on all threads at once. Returns the seconds of the slowest thread.
template <class Work>
double seconds_of(int threads, long repeats, Work work) {
  std::atomic<int> waiting{threads};
  std::vector<double> seconds(threads);
  const auto run = [&](int t) {
    --waiting;
    while (waiting > 0) std::this_thread::yield();
    const double start = now(threads);
    work(t, repeats);
    seconds[t] = now(threads) - start;
  };
  std::vector<std::thread> team;
  for (int t = 1; t < threads; ++t) team.emplace_back(run, t);
  run(0);
  for (std::thread& member : team) member.join();
  return *std::max_element(seconds.begin(), seconds.end());
}

// Doubles the work until it takes `least` seconds; returns the best time of a repeat.
template <class Work>
double best_seconds(int threads, double least, Work work) {
  double best = 1e30;
  for (long repeats = 1, tries = 0; tries < 5;) {
    const double slowest = seconds_of(threads, repeats, work);
    if (slowest < least) {
      repeats *= 2;
      continue;
    }
    ++tries;
    best = std::min(best, slowest / repeats);
  }
  return best;
}

inline volatile float sink;

inline void multiply_add(long repeats) {
  Vector sums[kChains], factor, term;
  for (int lane = 0; lane < kLanes; ++lane) {
    factor[lane] = 0.9999f + sink * 0;
    term[lane] = 1e-4f;
  }
  for (int i = 0; i < kChains; ++i) sums[i] = term;
  for (long r = 0; r < repeats * 1000; ++r) {
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + term;
  }
  float total = 0;
  for (int i = 0; i < kChains; ++i) total += sums[i][0];
  sink = total;
}

inline double gflops(int threads, double seconds) {  // per repeat
  return 2.0 * kLanes * kChains * 1000 * threads / seconds / 1e9;
}

// Returns GFLOP/s of multiply-adds, the best of samples of `least` seconds.
inline double best_gflops(int threads, double least) {
  return gflops(threads, best_seconds(threads, least, [](int, long n) { multiply_add(n); }));
}

// Returns GB/s of a[i] = b[i] + s * c[i]. `bytes` is the size of each array, over all threads.
inline double gbs(int threads, double least, long bytes) {
  const long n = bytes / 4 / threads;
  std::vector<std::vector<float>> arrays(3 * threads, std::vector<float>(n, 1.0f));
  const double seconds = best_seconds(threads, least, [&](int t, long repeats) {
    float* a = arrays[3 * t].data();
    const float *b = arrays[3 * t + 1].data(), *c = arrays[3 * t + 2].data();
    for (long r = 0; r < repeats; ++r) {
      const float s = 0.5f + sink * 0;
      for (long i = 0; i < n; ++i) a[i] = b[i] + s * c[i];
    }
  });
  return 3.0 * n * 4 * threads / seconds / 1e9;
}

}  // namespace limits
