// The caching allocator of every device. Buffers have size classes, and a released buffer is kept
// in its class for the next request. Each device supplies the memory (cpu/allocator.cc,
// cuda/allocator.cu).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace needle {

struct MemoryStats {
  std::int64_t in_use = 0, cached = 0, peak = 0;  // bytes; peak: the maximum of in_use
  std::int64_t allocations = 0, reuses = 0;       // reuses: requests served from the cache
};

// Becomes MemoryError in Python.
struct OutOfMemory : std::bad_alloc {
  explicit OutOfMemory(std::string message) : message(std::move(message)) {}
  const char* what() const noexcept override { return message.c_str(); }
  std::string message;
};

// Returns the size of the buffer for a request of `bytes`. `smallest`, a power of two, is the
// smallest size. There are four sizes per power of two, so at most a fifth of a buffer is unused.
std::size_t class_size(std::size_t bytes, std::size_t smallest);

class BufferCache {
 public:
  static constexpr std::int64_t kNoLimit = std::int64_t(1) << 60;

  struct Source {
    const char* owner;                // "the system", in errors
    std::size_t smallest;             // the size of the smallest class; all are multiples of it
    void* (*take)(std::size_t size);  // null if there is no more
    void (*give_back)(void* buffer, std::size_t size);
    // Cached memory may exceed the peak by this many bytes or by an eighth, whichever is more,
    // before buffers are freed.
    std::int64_t idle = kNoLimit;
    // Turns off rounding and caching, so that a memory checker sees where each buffer ends.
    bool exact = false;
  };

  explicit BufferCache(const Source& source) : source_(source) {}
  BufferCache(const BufferCache&) = delete;
  BufferCache& operator=(const BufferCache&) = delete;

  void* allocate(std::size_t bytes);                       // contents undefined; OutOfMemory
  void release(void* buffer, std::size_t bytes) noexcept;  // bytes: as requested
  MemoryStats stats();
  void empty();
  std::mutex& mutex() { return mutex_; }  // for fork

 private:
  static constexpr int kClasses = 4 * 64;

  void give_back_until(std::int64_t left);
  void make_room(std::size_t size);
  std::size_t size_for(std::size_t bytes) const;

  Source source_;
  std::mutex mutex_;
  std::vector<void*> free_[kClasses];
  MemoryStats stats_;
};

}  // namespace needle
