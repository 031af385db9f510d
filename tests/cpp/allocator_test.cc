// The caching allocator: alignment, size classes, idle memory, threads.
#include "cpu/allocator.h"

#include <cstring>
#include <thread>

#include "expect.h"

using namespace needle;

constexpr std::size_t kAlignment = 64;

TEST(buffers_are_aligned_and_large_enough) {
  for (std::size_t bytes : {0u, 1u, 63u, 64u, 65u, 1000u, 4097u, 1000000u}) {
    void* buffer = cpu::allocate(bytes);
    EXPECT(reinterpret_cast<std::uintptr_t>(buffer) % 64 == 0);
    std::memset(buffer, 1, class_size(bytes, kAlignment));  // a sanitizer checks the end
    cpu::release(buffer, bytes);
  }
}

TEST(classes_waste_little) {
  for (std::size_t bytes = 512; bytes < 100000; ++bytes) {
    const std::size_t size = class_size(bytes, kAlignment);
    EXPECT(size >= bytes && size % 64 == 0 && size <= bytes * 5 / 4 + 64);
    EXPECT(class_size(size, kAlignment) == size);
  }
}

TEST(what_lies_idle_is_given_back_for_buffers_of_other_sizes) {
  cpu::empty_cache();
  constexpr std::size_t kMany = 40, kSmall = std::size_t(4) << 20, kLarge = std::size_t(96) << 20;
  constexpr std::int64_t kIdle = std::int64_t(64) << 20;
  std::vector<void*> buffers(kMany);
  for (void*& buffer : buffers) buffer = cpu::allocate(kSmall);
  for (void* buffer : buffers) cpu::release(buffer, kSmall);
  EXPECT(cpu::memory_stats().cached == std::int64_t(kMany * kSmall));  // all was in use at once
  const std::int64_t peak = cpu::memory_stats().peak;
  auto* large = static_cast<char*>(cpu::allocate(kLarge));
  large[0] = large[kLarge - 1] = 1;
  const MemoryStats after = cpu::memory_stats();
  EXPECT(after.cached > 0 && after.cached < std::int64_t(kMany * kSmall));
  EXPECT(after.cached + after.in_use <= peak + kIdle);
  EXPECT(after.cached + after.in_use > peak + kIdle - std::int64_t(kSmall));  // no more was freed
  cpu::release(large, kLarge);
  cpu::release(cpu::allocate(kSmall), kSmall);
  EXPECT(cpu::memory_stats().reuses == after.reuses + 1);
  cpu::empty_cache();
}

TEST(threads_share_it) {
  const std::int64_t before = cpu::memory_stats().in_use;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int repeat = 0; repeat < 500; ++repeat) {
        const std::size_t bytes = 100 + 700 * ((repeat + i) % 5);
        void* buffer = cpu::allocate(bytes);
        std::memset(buffer, i, bytes);
        cpu::release(buffer, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(cpu::memory_stats().in_use == before);
}
