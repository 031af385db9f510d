// The caching allocator of the CPU device: buffers of 64-byte alignment by size class; a released
// buffer waits in its class for the next request. Called by the bindings; kernels use Scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <string>

namespace needle::cpu {

struct MemoryStats {
  std::int64_t in_use = 0, cached = 0, peak = 0;  // bytes; peak is of in_use
  std::int64_t allocations = 0, reuses = 0;       // requests; those served from the cache
};

// Becomes MemoryError in Python.
struct OutOfMemory : std::bad_alloc {
  explicit OutOfMemory(std::string message) : message(std::move(message)) {}
  const char* what() const noexcept override { return message.c_str(); }
  std::string message;
};

void* allocate(std::size_t bytes);                       // contents undefined; throws OutOfMemory
void release(void* buffer, std::size_t bytes) noexcept;  // bytes as asked for
MemoryStats memory_stats();
void empty_cache();
std::size_t class_size(std::size_t bytes);  // what a request of `bytes` takes

}  // namespace needle::cpu
