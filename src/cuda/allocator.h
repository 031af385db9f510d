// The memory of the CUDA devices: a BufferCache each, and temporaries of a kernel. A buffer that is
// released while kernels still use it may be handed out at once: its next user's kernels come later
// in the same stream.
#pragma once

#include <utility>
#include <vector>

#include "core/buffer_cache.h"

namespace needle::cuda {

// Buffers as long as asked for, from the driver and back to it (NEEDLE_CUDA_EXACT); to be said
// before the first of them.
void set_exact(bool on);
void* allocate(std::size_t bytes, int device);  // contents undefined; throws OutOfMemory
void release(void* buffer, std::size_t bytes, int device) noexcept;
MemoryStats memory_stats(int device);
void empty_cache(int device);

// Temporaries of kernels that this thread records in a graph (graph.h). Each launch of the graph
// uses the memory again, so it returns to the cache when the graph is freed. Within the graph it is
// reused.
class KeptMemory {
 public:
  explicit KeptMemory(int device) : device_(device) {}
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  void* take(std::size_t bytes);
  void give_back(void* data) noexcept;
  // Temporaries of this thread are taken from this memory from now on; null: from the cache.
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
