// The one thread pool of the process (not OpenMP). It starts at first use. set_num_threads sets its
// size (Python passes NEEDLE_NUM_THREADS); by default it is the number of cores that this process
// may use. A forked child starts its own pool; nested calls run inline. Results never depend on the
// number of threads, because only n and grain determine how work is cut into chunks.
#pragma once

#include <cstdint>
#include <type_traits>

namespace needle {

// A non-owning reference to a callable void(int64 begin, int64 end).
struct RangeFunction {
  void* object;
  void (*call)(void* object, std::int64_t begin, std::int64_t end);
};

int num_threads();
void set_num_threads(int n);  // 1 <= n; takes effect at the next parallel_for

// Cuts [0, n) into consecutive chunks of `grain` indices (the last may be shorter) and calls f once
// for each. Up to num_threads() threads, including the caller, share the chunks. Returns when all
// are done. Runs inline if n <= grain, or inside another parallel_for. The first exception thrown
// by f is rethrown here.
void parallel_chunks(std::int64_t n, std::int64_t grain, RangeFunction f);

template <class F>
static inline void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
  using Callable = std::remove_reference_t<F>;
  parallel_chunks(n, grain,
                  {const_cast<void*>(static_cast<const void*>(&f)),
                   [](void* object, std::int64_t begin, std::int64_t end) {
                     (*static_cast<Callable*>(object))(begin, end);
                   }});
}

}  // namespace needle
