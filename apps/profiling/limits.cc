// Prints a line of JSON with the limits of this machine; limits.py compiles it for this machine.
// Usage: limits THREADS [SECONDS PER PART]
#include "limits.h"

#include <cstdio>
#include <cstdlib>

// Returns the current peak, measured for 10 ms, to callers that load this file as a library.
extern "C" double gflops_now(int threads) {
  constexpr long kRepeats = 5000;
  const auto work = [](int, long n) { limits::multiply_add(n); };
  return limits::gflops(threads, limits::seconds_of(threads, kRepeats, work) / kRepeats);
}

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  const double least = count > 2 ? std::atof(arguments[2]) : 0.1;
  std::printf("{\"gflops\": %.4g, \"gbs large\": %.4g, \"gbs small\": %.4g}\n",
              limits::best_gflops(threads, least), limits::gbs(threads, least, 34L << 20),
              limits::gbs(threads, least, 1L << 20));
  return 0;
}
