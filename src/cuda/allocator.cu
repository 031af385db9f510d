#include "allocator.h"

#include <atomic>

#include "device.h"

namespace needle::cuda {
namespace {

constexpr std::size_t kSmallest = 512;

std::atomic<bool> exact{false};

// The caches are never destroyed: arrays may be released while the process exits.
template <int... kDevice>
BufferCache& cache_of(int device, std::integer_sequence<int, kDevice...>) {
  static BufferCache* const caches[] = {new BufferCache(
      {"the GPU", kSmallest, [](std::size_t size) { return take_memory(kDevice, size); },
       [](void* buffer, std::size_t) { give_memory_back(kDevice, buffer); }, BufferCache::kNoLimit,
       exact})...};
  return *caches[device];
}

BufferCache& cache(int device) {
  return cache_of(device, std::make_integer_sequence<int, kMaxDevices>());
}

thread_local KeptMemory* keeping = nullptr;

}  // namespace

void set_exact(bool on) { exact = on; }

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

KeptMemory::~KeptMemory() {
  for (const Buffer& piece : pieces_) release(piece.data, piece.bytes, device_);
}

void* KeptMemory::take(std::size_t bytes) {
  for (Buffer& piece : pieces_) {
    if (piece.taken || piece.bytes < bytes || piece.bytes / 2 > bytes) continue;
    piece.taken = true;
    return piece.data;
  }
  pieces_.reserve(pieces_.size() + 1);
  pieces_.push_back({allocate(bytes, device_), bytes, true});
  return pieces_.back().data;
}

void KeptMemory::give_back(void* data) noexcept {
  for (Buffer& piece : pieces_) piece.taken = piece.taken && piece.data != data;
}

void KeptMemory::keep_in(KeptMemory* memory) { keeping = memory; }

Temporary::Temporary(std::size_t bytes, int device)
    : data_(keeping != nullptr ? keeping->take(bytes) : allocate(bytes, device)),
      bytes_(bytes),
      device_(device),
      kept_(keeping) {}

Temporary::~Temporary() {
  kept_ != nullptr ? kept_->give_back(data_) : release(data_, bytes_, device_);
}

}  // namespace needle::cuda
