#include "allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace needle::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLargest = std::size_t(1) << 60;  // beyond any machine: never asked of it
constexpr int kClasses = 4 * 64;

// Classes grow by quarters of a power of two: at most a fifth of a buffer is unused.
int class_of(std::size_t size) {
  const int power = std::bit_width(size - 1);  // 2^(power-1) < size <= 2^power
  return 4 * power + static_cast<int>(((std::size_t(1) << power) - size) /
                                      (std::max<std::size_t>(8, std::size_t(1) << power) / 8));
}

constexpr std::size_t kHugePage = std::size_t(2) << 20;

// Memory of the system, null if there is none. A large buffer asks for huge pages: its first use is
// then one page fault in 2 MiB instead of 512, and its addresses need few entries of the TLB. Only
// whole ones are asked for, so no more memory is taken than without.
void* system_memory(std::size_t size) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (size >= kHugePage) {
    void* buffer = std::aligned_alloc(kHugePage, (size + kHugePage - 1) / kHugePage * kHugePage);
    if (buffer != nullptr) madvise(buffer, size / kHugePage * kHugePage, MADV_HUGEPAGE);
    return buffer;
  }
#endif
  return std::aligned_alloc(kAlignment, size);
}

struct Cache {
  std::mutex mutex;
  std::vector<void*> free[kClasses];
  MemoryStats stats;
};

#if defined(__unix__) || defined(__APPLE__)
void lock_cache();
void unlock_cache();
#endif

// Never destroyed: arrays may be released while the process ends. The lock is held over fork, so
// that a child never inherits it locked.
Cache& cache() {
  static Cache* the_cache = [] {
#if defined(__unix__) || defined(__APPLE__)
    pthread_atfork(lock_cache, unlock_cache, unlock_cache);
#endif
    return new Cache;
  }();
  return *the_cache;
}

#if defined(__unix__) || defined(__APPLE__)
void lock_cache() { cache().mutex.lock(); }
void unlock_cache() { cache().mutex.unlock(); }
#endif

void free_all(Cache& c) {
  for (auto& list : c.free) {
    for (void* buffer : list) std::free(buffer);
    list.clear();
  }
  c.stats.cached = 0;
}

[[noreturn]] void fail(std::size_t bytes, const MemoryStats& stats) {
  throw OutOfMemory("allocate: the system has no " + std::to_string(bytes) + " bytes left, " +
                    std::to_string(stats.in_use) + " bytes are in use and " +
                    std::to_string(stats.cached) +
                    " bytes cached; use smaller arrays or batches, or drop arrays");
}

}  // namespace

std::size_t class_size(std::size_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const std::size_t step = std::max(kAlignment, std::bit_ceil(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

void* allocate(std::size_t bytes) {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  if (bytes > kLargest) fail(bytes, c.stats);
  const std::size_t size = class_size(bytes);
  auto& list = c.free[class_of(size)];
  void* buffer = nullptr;
  if (!list.empty()) {
    buffer = list.back();
    list.pop_back();
    c.stats.cached -= size;
    ++c.stats.reuses;
  } else {
    buffer = system_memory(size);
    if (buffer == nullptr) {
      const MemoryStats before = c.stats;
      free_all(c);
      buffer = system_memory(size);
      if (buffer == nullptr) fail(bytes, before);
    }
  }
  ++c.stats.allocations;
  c.stats.in_use += size;
  c.stats.peak = std::max(c.stats.peak, c.stats.in_use);
  return buffer;
}

void release(void* buffer, std::size_t bytes) noexcept {
  const std::size_t size = class_size(bytes);
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.stats.in_use -= size;
  try {
    c.free[class_of(size)].push_back(buffer);
    c.stats.cached += size;
  } catch (const std::bad_alloc&) {
    std::free(buffer);
  }
}

MemoryStats memory_stats() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  return c.stats;
}

void empty_cache() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  free_all(c);
}

}  // namespace needle::cpu
