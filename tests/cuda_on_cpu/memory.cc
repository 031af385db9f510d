// Device memory on the CPU: one region of addresses a device, closed (PROT_NONE) unless a kernel or
// a copy runs, so that host code that follows a device pointer stops at once. What is handed out
// is filled with NaN and has guards before and behind it.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace cuda_on_cpu {
namespace {

constexpr int kDevices = 2;
constexpr std::size_t kRegion = std::size_t(16) << 30;  // addresses, not memory
constexpr std::size_t kGuard = 256, kPage = 4096;
constexpr unsigned char kNan = 0xff, kGuardByte = 0xa5;

struct Piece {
  std::size_t room, used;  // bytes; [used, room) is guarded too
};

struct Device {
  char* base = nullptr;
  std::map<std::size_t, Piece> pieces;  // by offset of the buffer
  std::size_t taken = 0, high = 0;      // bytes; the end of the highest piece so far
};

Device devices[kDevices];
thread_local int current = 0;
int open_count = 0;
std::recursive_mutex mutex;  // one grid or copy at a time
std::size_t limit = std::size_t(1) << 30;

Device& device() {
  Device& d = devices[current];
  if (d.base == nullptr) {
    void* at =
        mmap(nullptr, kRegion, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("cuda_on_cpu: no addresses for device memory");
    d.base = static_cast<char*>(at);
  }
  return d;
}

std::size_t pages_to(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void protect(int flags) {
  Device& d = device();
  if (d.high > 0 && mprotect(d.base, pages_to(d.high), flags) != 0) {
    throw std::runtime_error("cuda_on_cpu: mprotect failed");
  }
}

void set_guards(Device& d, std::size_t at, const Piece& piece) {
  std::memset(d.base + at - kGuard, kGuardByte, kGuard);
  std::memset(d.base + at, kNan, piece.used);
  std::memset(d.base + at + piece.used, kGuardByte, piece.room - piece.used + kGuard);
}

void poison(Device& d, std::size_t at, const Piece& piece) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(d.base + at, piece.used);
  __asan_poison_memory_region(d.base + at - kGuard, kGuard);
  __asan_poison_memory_region(d.base + at + piece.used, piece.room - piece.used + kGuard);
#else
  static_cast<void>(d), static_cast<void>(at), static_cast<void>(piece);
#endif
}

void unpoison(Device& d, std::size_t at, const Piece& piece) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(d.base + at - kGuard, piece.room + 2 * kGuard);
#else
  static_cast<void>(d), static_cast<void>(at), static_cast<void>(piece);
#endif
}

// The first gap that is large enough.
std::size_t find_gap(const Device& d, std::size_t room) {
  std::size_t at = kGuard;
  for (const auto& [offset, piece] : d.pieces) {
    if (at + room + kGuard + kGuard <= offset) break;
    at = (offset + piece.room + 2 * kGuard + kGuard - 1) / kGuard * kGuard;
  }
  return at;
}

// A freed piece's pages are not memory any more: opening and closing takes time by pages.
cudaError_t give_back(Device& d, std::size_t at, std::size_t room) {
  const std::size_t first = pages_to(at), end = at + room;
  const std::size_t last = end < d.high - kGuard ? end / kPage * kPage : pages_to(d.high);
  if (last > first && madvise(d.base + first, last - first, MADV_DONTNEED) != 0) {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

bool intact(const char* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (static_cast<unsigned char>(from[i]) != kGuardByte) return false;
  }
  return true;
}

}  // namespace

Opened::Opened() {
  mutex.lock();
  if (open_count++ == 0) protect(PROT_READ | PROT_WRITE);
}
Opened::~Opened() {
  if (--open_count == 0) protect(PROT_NONE);
  mutex.unlock();
}

void guard(void* buffer, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  Device& d = device();
  const auto found = d.pieces.find(static_cast<char*>(buffer) - d.base);
  if (found == d.pieces.end() || bytes > found->second.room) {
    throw std::runtime_error("cuda_on_cpu: guard: this is no buffer of the current device");
  }
  const Opened opened;
  unpoison(d, found->first, found->second);
  found->second.used = bytes;
  set_guards(d, found->first, found->second);
  poison(d, found->first, found->second);
}

#ifdef __SANITIZE_ADDRESS__
void check_guards() {}  // the sanitizer has stopped the program by then
#else
void check_guards() {
  constexpr std::size_t kNear = 64;
  Device& d = device();
  for (const auto& [at, piece] : d.pieces) {
    const char* end = d.base + at + piece.used;
    if (!intact(end, kNear) || !intact(d.base + at - kNear, kNear)) {
      const std::size_t bytes = piece.used;
      set_guards(d, at, piece);
      throw std::runtime_error("cuda_on_cpu: a kernel wrote outside a buffer of " +
                               std::to_string(bytes) + " bytes");
    }
  }
}
#endif

void set_memory_limit(std::size_t bytes) { limit = bytes; }

}  // namespace cuda_on_cpu

// ---- streams: copies from pinned memory wait in them ----

struct cuda_on_cpu_stream {
  int device;
  std::deque<std::function<void()>> waiting;
  std::size_t issued = 0, done = 0;  // of what has waited
};

struct cuda_on_cpu_event {
  cuda_on_cpu_stream* stream = nullptr;
  std::size_t upto = 0;
};

namespace cuda_on_cpu {
namespace {

std::vector<cuda_on_cpu_stream*> streams;  // live as long as the process
struct Pinned {
  std::size_t bytes;
  bool registered;
};
std::map<const char*, Pinned> pinned;
std::int64_t from_registered = 0;

// The pinned memory that these bytes are in, or null.
const Pinned* pinned_of(const void* memory, std::size_t bytes) {
  const auto* at = static_cast<const char*>(memory);
  auto next = pinned.upper_bound(at);
  if (next == pinned.begin() || at + bytes > (--next)->first + next->second.bytes) return nullptr;
  return &next->second;
}

void catch_up(cuda_on_cpu_stream* stream, std::size_t upto) {
  const std::lock_guard lock(mutex);
  while (stream != nullptr && stream->done < upto) {
    const std::function<void()> next = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    ++stream->done;
    const int before = std::exchange(current, stream->device);
    next();
    current = before;
  }
}

void put_off(cuda_on_cpu_stream* stream, std::function<void()> what) {
  const std::lock_guard lock(mutex);
  stream->waiting.push_back(std::move(what));
  ++stream->issued;
}

}  // namespace

std::int64_t bytes_from_registered() { return from_registered; }

void catch_up(cuda_on_cpu_stream* stream) {
  if (stream != nullptr) catch_up(stream, stream->issued);
}

}  // namespace cuda_on_cpu

using namespace cuda_on_cpu;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    default: return "invalid argument";
  }
}

cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int chosen) {
  if (chosen < 0 || chosen >= kDevices) return cudaErrorInvalidDevice;
  current = chosen;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 2;  // few, so that threads take several turns
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  streams.push_back(new cuda_on_cpu_stream{current, {}});
  *stream = streams.back();
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  catch_up(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  put_off(stream, [from = event->stream, upto = event->upto] { catch_up(from, upto); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new cuda_on_cpu_event;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {stream, stream->issued};
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  catch_up(event->stream, event->upto);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  const std::lock_guard lock(mutex);
  const Pinned piece{bytes, true};
  const bool is_new = pinned.emplace(static_cast<const char*>(memory), piece).second;
  return is_new ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
}

cudaError_t cudaHostUnregister(void* memory) {
  const std::lock_guard lock(mutex);
  const bool known = pinned.erase(static_cast<const char*>(memory)) == 1;
  return known ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, kNan, bytes);
  const std::lock_guard lock(mutex);
  pinned[static_cast<const char*>(*memory)] = {bytes, false};
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  for (cuda_on_cpu_stream* stream : streams) catch_up(stream);
  const cudaError_t status = cudaHostUnregister(memory);
  if (status == cudaSuccess) std::free(memory);
  return status;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  Device& d = device();
  const std::size_t room = (bytes + kGuard - 1) / kGuard * kGuard;
  const std::size_t at = find_gap(d, room);
  if (d.taken + room > limit || at + room + kGuard > kRegion) return cudaErrorMemoryAllocation;
  d.high = std::max(d.high, at + room + kGuard);
  d.taken += room;
  const Piece& piece = d.pieces[at] = {room, bytes};
  const Opened opened;
  set_guards(d, at, piece);
  poison(d, at, piece);
  *pointer = d.base + at;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  for (cuda_on_cpu_stream* stream : streams) catch_up(stream);
  const std::lock_guard lock(mutex);
  Device& d = device();
  const auto found = d.pieces.find(static_cast<char*>(pointer) - d.base);
  if (found == d.pieces.end()) return cudaErrorInvalidValue;
  const auto [at, piece] = *found;
  unpoison(d, at, piece);
  d.taken -= piece.room;
  d.pieces.erase(found);
  return give_back(d, at, piece.room);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = limit;
  *free = limit - device().taken;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const auto copy = [=] {
    const Opened opened;
    std::memcpy(to, from, bytes);
    check_guards();
  };
  const Pinned* piece = stream == nullptr ? nullptr : pinned_of(from, bytes);
  if (piece != nullptr) {
    if (piece->registered) from_registered += static_cast<std::int64_t>(bytes);
    put_off(stream, copy);
    return cudaSuccess;
  }
  catch_up(stream);
  copy();
  return cudaSuccess;
}
