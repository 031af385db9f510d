#include "allocator.h"

#include <cstdlib>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace needle::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
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

#if defined(__unix__) || defined(__APPLE__)
void lock_cache();
void unlock_cache();
#endif

// Never destroyed: arrays may be released while the process ends. The lock is held over fork, so
// that a child never inherits it locked.
BufferCache& cache() {
  static BufferCache* the_cache = [] {
#if defined(__unix__) || defined(__APPLE__)
    pthread_atfork(lock_cache, unlock_cache, unlock_cache);
#endif
    return new BufferCache({"the system", kAlignment, system_memory, std::free});
  }();
  return *the_cache;
}

#if defined(__unix__) || defined(__APPLE__)
void lock_cache() { cache().mutex().lock(); }
void unlock_cache() { cache().mutex().unlock(); }
#endif

}  // namespace

std::size_t class_size(std::size_t bytes) { return needle::class_size(bytes, kAlignment); }
void* allocate(std::size_t bytes) { return cache().allocate(bytes); }
void release(void* buffer, std::size_t bytes) noexcept { cache().release(buffer, bytes); }
MemoryStats memory_stats() { return cache().stats(); }
void empty_cache() { cache().empty(); }

}  // namespace needle::cpu
