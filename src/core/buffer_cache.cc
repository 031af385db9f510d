#include "buffer_cache.h"

#include <algorithm>
#include <bit>

namespace needle {
namespace {

constexpr std::size_t kLargest = std::size_t(1) << 60;  // beyond any machine: never asked of it

int class_of(std::size_t size) {
  const int power = std::bit_width(size - 1);  // 2^(power-1) < size <= 2^power
  return 4 * power + static_cast<int>(((std::size_t(1) << power) - size) /
                                      (std::max<std::size_t>(8, std::size_t(1) << power) / 8));
}

[[noreturn]] void fail(const char* owner, std::size_t bytes, const MemoryStats& stats) {
  throw OutOfMemory(std::string("allocate: ") + owner + " has no " + std::to_string(bytes) +
                    " bytes left, " + std::to_string(stats.in_use) + " bytes are in use and " +
                    std::to_string(stats.cached) +
                    " bytes cached; use smaller arrays or batches, or drop arrays");
}

}  // namespace

std::size_t class_size(std::size_t bytes, std::size_t smallest) {
  if (bytes <= smallest) return smallest;
  const std::size_t step = std::max(smallest, std::bit_ceil(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

void BufferCache::free_all() {
  for (auto& list : free_) {
    for (void* buffer : list) source_.give_back(buffer);
    list.clear();
  }
  stats_.cached = 0;
}

void* BufferCache::allocate(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > kLargest) fail(source_.owner, bytes, stats_);
  const std::size_t size = class_size(bytes, source_.smallest);
  auto& list = free_[class_of(size)];
  void* buffer = nullptr;
  if (!list.empty()) {
    buffer = list.back();
    list.pop_back();
    stats_.cached -= size;
    ++stats_.reuses;
  } else {
    buffer = source_.take(size);
    if (buffer == nullptr) {
      const MemoryStats before = stats_;
      free_all();
      buffer = source_.take(size);
      if (buffer == nullptr) fail(source_.owner, bytes, before);
    }
  }
  ++stats_.allocations;
  stats_.in_use += size;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  return buffer;
}

void BufferCache::release(void* buffer, std::size_t bytes) noexcept {
  const std::size_t size = class_size(bytes, source_.smallest);
  std::lock_guard lock(mutex_);
  stats_.in_use -= size;
  try {
    free_[class_of(size)].push_back(buffer);
    stats_.cached += size;
  } catch (const std::bad_alloc&) {
    source_.give_back(buffer);
  }
}

MemoryStats BufferCache::stats() {
  std::lock_guard lock(mutex_);
  return stats_;
}

void BufferCache::empty() {
  std::lock_guard lock(mutex_);
  free_all();
}

}  // namespace needle
