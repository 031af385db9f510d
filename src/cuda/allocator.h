// The memory of the CUDA devices: a BufferCache each, and temporaries of a kernel. A buffer that is
// released while kernels still use it may be handed out at once: its next user's kernels come later
// in the same stream.
#pragma once

#include <utility>

#include "core/buffer_cache.h"

namespace needle::cuda {

void* allocate(std::size_t bytes, int device);  // contents undefined; throws OutOfMemory
void release(void* buffer, std::size_t bytes, int device) noexcept;
MemoryStats memory_stats(int device);
void empty_cache(int device);

class Temporary {
 public:
  Temporary(std::size_t bytes, int device)
      : data_(allocate(bytes, device)), bytes_(bytes), device_(device) {}
  ~Temporary() { release(data_, bytes_, device_); }
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
};

}  // namespace needle::cuda
