// The memory of the CPU device: buffers of 64-byte alignment from a BufferCache. Called by the
// bindings; kernels use Scratch.
#pragma once

#include "core/buffer_cache.h"

namespace needle::cpu {

void* allocate(std::size_t bytes);                       // contents undefined; throws OutOfMemory
void release(void* buffer, std::size_t bytes) noexcept;  // bytes: as requested
MemoryStats memory_stats();
void empty_cache();

}  // namespace needle::cpu
