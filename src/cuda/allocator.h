// The memory of the CUDA devices: one BufferCache per device, and kernels' temporaries. A released
// buffer may be reused at once even if kernels still read it, since its next user's kernels come
// later in the same stream.
#pragma once

#include <utility>
#include <vector>

#include "core/buffer_cache.h"

namespace needle::cuda {

// Turns off rounding of sizes and caching (NEEDLE_CUDA_EXACT). Call it before the first allocation.
void set_exact(bool on);
void* allocate(std::size_t bytes, int device);  // contents undefined; throws OutOfMemory
void release(void* buffer, std::size_t bytes, int device) noexcept;
MemoryStats memory_stats(int device);
void empty_cache(int device);

// The temporaries of kernels that this thread records in a graph (graph.h). Each launch of the
// graph uses the memory again, so it returns to the cache when the graph is freed. Within the graph
// it is reused.
class KeptMemory {
 public:
  explicit KeptMemory(int device) : device_(device) {}
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  void* take(std::size_t bytes);
  void give_back(void* data) noexcept;
  // From now on, this thread's temporaries come from `memory`, or from the cache if that is null.
  static void keep_in(KeptMemory* memory);

 private:
  struct Buffer {
    void* data;
    std::size_t bytes;
    bool taken;
  };
  int device_;
  std::vector<Buffer> pieces_;
};

class Temporary {
 public:
  Temporary(std::size_t bytes, int device);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  std::size_t bytes_;
  int device_;
  KeptMemory* kept_;  // or null
};

}  // namespace needle::cuda
