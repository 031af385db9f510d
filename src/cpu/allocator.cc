#include "allocator.h"

#include <cstdint>
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
constexpr std::int64_t kIdle = std::int64_t(64) << 20;
constexpr std::size_t kHugePage = std::size_t(2) << 20;

#if defined(__linux__) && defined(MADV_HUGEPAGE) && !defined(__SANITIZE_ADDRESS__)

constexpr bool kHasHugePages = true;

// Maps separate pages, aligned to huge pages, and requests huge ones: the first use then costs one
// page fault in 2 MiB instead of 512, and few TLB entries suffice. Only whole huge pages are
// requested, so no additional memory is used. Returns null if there is no memory.
void* pages(std::size_t size) {
  const std::size_t length = size + kHugePage;
  void* const mapped =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(mapped);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(begin) % kHugePage;
  char* const buffer = begin + before;
  if (before > 0) munmap(begin, before);
  munmap(buffer + size, kHugePage - before);
  madvise(buffer, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  return buffer;
}

void unmap(void* buffer, std::size_t size) { munmap(buffer, size); }

#else

constexpr bool kHasHugePages = false;
void* pages(std::size_t) { return nullptr; }
void unmap(void*, std::size_t) {}

#endif

// Large buffers have separate pages, which return to the system without fragmenting a heap; the
// others come from malloc. With the address sanitizer all of them come from malloc, so that it
// checks their bounds.
bool has_pages(std::size_t size) { return kHasHugePages && size >= kHugePage; }

void* take(std::size_t size) {
  return has_pages(size) ? pages(size) : std::aligned_alloc(kAlignment, size);
}

void give_back(void* buffer, std::size_t size) {
  has_pages(size) ? unmap(buffer, size) : std::free(buffer);
}

// Never destroyed, since arrays may be released while the process ends. The lock is held over fork,
// so that no child inherits it locked.
BufferCache& cache() {
  static BufferCache* the_cache = [] {
#if defined(__unix__) || defined(__APPLE__)
    const auto unlock = [] { cache().mutex().unlock(); };
    pthread_atfork([] { cache().mutex().lock(); }, unlock, unlock);
#endif
    return new BufferCache({"the system", kAlignment, take, give_back, kIdle});
  }();
  return *the_cache;
}

}  // namespace

void* allocate(std::size_t bytes) { return cache().allocate(bytes); }
void release(void* buffer, std::size_t bytes) noexcept { cache().release(buffer, bytes); }
MemoryStats memory_stats() { return cache().stats(); }
void empty_cache() { cache().empty(); }

}  // namespace needle::cpu
