#include "allocator.h"

#include "device.h"

namespace needle::cuda {
namespace {

constexpr std::size_t kSmallest = 512;

// Never destroyed: arrays may be released while the process ends.
template <int... kDevice>
BufferCache& cache_of(int device, std::integer_sequence<int, kDevice...>) {
  static BufferCache* const caches[] = {new BufferCache(
      {"the GPU", kSmallest, [](std::size_t size) { return take_memory(kDevice, size); },
       [](void* buffer) { give_memory_back(kDevice, buffer); }})...};
  return *caches[device];
}

BufferCache& cache(int device) {
  return cache_of(device, std::make_integer_sequence<int, kMaxDevices>());
}

}  // namespace

void* allocate(std::size_t bytes, int device) {
  void* buffer = cache(device).allocate(bytes);
  mark_end(device, buffer, bytes);
  return buffer;
}

void release(void* buffer, std::size_t bytes, int device) noexcept {
  cache(device).release(buffer, bytes);
}

MemoryStats memory_stats(int device) { return cache(device).stats(); }
void empty_cache(int device) { cache(device).empty(); }

}  // namespace needle::cuda
