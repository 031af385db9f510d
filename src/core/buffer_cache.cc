#include "buffer_cache.h"

#include <algorithm>
#include <bit>

namespace needle {
namespace {

constexpr std::size_t kLargest = std::size_t(1) << 60;  // more than any machine has

int class_of(std::size_t size) {
  const int power = std::bit_width(size - 1);  // 2^(power-1) < size <= 2^power
  return 4 * power + static_cast<int>(((std::size_t(1) << power) - size) /
                                      (std::max<std::size_t>(8, std::size_t(1) << power) / 8));
}

// Inverse of class_of.
std::int64_t size_of_class(int which) {
  const std::int64_t most = std::int64_t(1) << which / 4;
  return most - which % 4 * (most / 8);
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

// Frees the largest buffers first.
void BufferCache::give_back_until(std::int64_t left) {
  for (int which = kClasses - 1; which >= 0; --which) {
    auto& list = free_[which];
    const std::int64_t size = size_of_class(which);
    for (; stats_.cached > left && !list.empty(); list.pop_back()) {
      source_.give_back(list.back(), std::size_t(size));
      stats_.cached -= size;
    }
  }
}

// Without this limit, a program whose buffer sizes change would keep its peak of every size.
void BufferCache::make_room(std::size_t size) {
  const std::int64_t needed = stats_.in_use + std::int64_t(size);
  const std::int64_t most = std::max(stats_.peak, needed);
  give_back_until(most + std::max(most / 8, source_.idle) - needed);
}

std::size_t BufferCache::size_for(std::size_t bytes) const {
  return source_.exact ? std::max<std::size_t>(1, bytes) : class_size(bytes, source_.smallest);
}

void* BufferCache::allocate(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > kLargest) fail(source_.owner, bytes, stats_);
  const std::size_t size = size_for(bytes);
  auto& list = free_[class_of(size)];
  void* buffer = nullptr;
  if (!list.empty()) {
    buffer = list.back();
    list.pop_back();
    stats_.cached -= size;
    ++stats_.reuses;
  } else {
    make_room(size);
    buffer = source_.take(size);
    if (buffer == nullptr) {
      const MemoryStats before = stats_;
      give_back_until(0);
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
  const std::size_t size = size_for(bytes);
  std::lock_guard lock(mutex_);
  stats_.in_use -= size;
  if (source_.exact) return source_.give_back(buffer, size);
  try {
    free_[class_of(size)].push_back(buffer);
    stats_.cached += size;
  } catch (const std::bad_alloc&) {
    source_.give_back(buffer, size);
  }
}

MemoryStats BufferCache::stats() {
  std::lock_guard lock(mutex_);
  return stats_;
}

void BufferCache::empty() {
  std::lock_guard lock(mutex_);
  give_back_until(0);
}

}  // namespace needle
