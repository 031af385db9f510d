// The caching allocator: alignment, size classes, reuse, statistics, an impossible request.
#include "cpu/allocator.h"

#include <cstring>
#include <thread>

#include "expect.h"

using namespace needle;

TEST(buffers_are_aligned_and_large_enough) {
  for (std::size_t bytes : {0u, 1u, 63u, 64u, 65u, 1000u, 4097u, 1000000u}) {
    void* buffer = cpu::allocate(bytes);
    EXPECT(reinterpret_cast<std::uintptr_t>(buffer) % 64 == 0);
    std::memset(buffer, 1, cpu::class_size(bytes));  // the sanitizer looks at the end
    cpu::release(buffer, bytes);
  }
}

TEST(classes_waste_little) {
  for (std::size_t bytes = 512; bytes < 100000; ++bytes) {
    const std::size_t size = cpu::class_size(bytes);
    EXPECT(size >= bytes && size % 64 == 0 && size <= bytes * 5 / 4 + 64);
    EXPECT(cpu::class_size(size) == size);
  }
}

TEST(a_released_buffer_serves_the_next_request_of_its_class) {
  cpu::empty_cache();
  const MemoryStats before = cpu::memory_stats();
  void* first = cpu::allocate(5000);
  EXPECT(cpu::memory_stats().in_use == before.in_use + std::int64_t(cpu::class_size(5000)));
  cpu::release(first, 5000);
  EXPECT(cpu::memory_stats().cached == std::int64_t(cpu::class_size(5000)));
  EXPECT(cpu::memory_stats().in_use == before.in_use);
  void* second = cpu::allocate(5001);
  EXPECT(second == first);
  EXPECT(cpu::memory_stats().reuses == before.reuses + 1);
  EXPECT(cpu::memory_stats().allocations == before.allocations + 2);
  cpu::release(second, 5001);
  cpu::empty_cache();
  EXPECT(cpu::memory_stats().cached == 0);
}

TEST(an_impossible_request_names_its_bytes) {
  std::string message;
  try {
    cpu::allocate(std::size_t(1) << 61);
  } catch (const std::bad_alloc& error) {
    message = error.what();
  }
  EXPECT(message.find("2305843009213693952 bytes") != std::string::npos);
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
