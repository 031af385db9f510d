// Device memory on the CPU: one address range per device. Allocations return pointers into a second
// range of the same size that is inaccessible (PROT_NONE), so host code that dereferences one
// crashes at once; copies and launches translate them to the real addresses. An allocation is
// filled with NaN and has guards before and behind it, which also read as NaN. Memory outside
// allocations is poisoned for kernels too.
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
#include "watch.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace cuda_on_cpu {
namespace {

constexpr int kDevices = 2;
constexpr std::size_t kRegion = std::size_t(16) << 30;  // reserved addresses, not memory
constexpr std::size_t kGuard = 256;
constexpr unsigned char kNan = 0xff;
constexpr std::uint32_t kGuardWord = 0xfffafafa;  // a NaN that no kernel computes

struct Piece {
  std::size_t room, used;  // bytes; [used, room) is guarded as well
};

struct Device {
  char* base = nullptr;                 // followed by the inaccessible range
  std::map<std::size_t, Piece> pieces;  // by offset of the buffer
  std::size_t taken = 0;                // bytes
  std::size_t open = 0;                 // bytes from base that kernels may access
};

Device devices[kDevices];
thread_local int current = 0;
std::recursive_mutex mutex;
std::size_t limit = std::size_t(1) << 30;

Device& device() {
  Device& d = devices[current];
  if (d.base == nullptr) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* at = mmap(nullptr, 2 * kRegion, PROT_NONE, kFlags, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("cuda_on_cpu: no addresses for device memory");
    d.base = static_cast<char*>(at);
  }
  return d;
}

char* handed_out(const Device& d, std::size_t at) { return d.base + kRegion + at; }
std::size_t place_of(const Device& d, const void* pointer) {
  return static_cast<std::size_t>(static_cast<const char*>(pointer) - handed_out(d, 0));
}

unsigned char guard_byte(const char* at) {
  return static_cast<unsigned char>(kGuardWord >> reinterpret_cast<std::uintptr_t>(at) % 4 * 8);
}

void fill_guard(char* at, char* end) {
  for (; at < end && reinterpret_cast<std::uintptr_t>(at) % 4 != 0; ++at) {
    *at = static_cast<char>(guard_byte(at));
  }
  for (; end - at >= 4; at += 4) std::memcpy(at, &kGuardWord, 4);
  for (; at < end; ++at) *at = static_cast<char>(guard_byte(at));
}

void set_guards(Device& d, std::size_t at, const Piece& piece) {
  char* const begin = d.base + at;
  fill_guard(begin - kGuard, begin);
  std::memset(begin, kNan, piece.used);
  fill_guard(begin + piece.used, begin + piece.room + kGuard);
}

// Makes the range accessible up to the end of a buffer at `at`; returns false if the system has no
// memory.
bool open_up(Device& d, std::size_t at, std::size_t room) {
  constexpr std::size_t kStep = std::size_t(1) << 20;
  const std::size_t needed = (at + room + kGuard + kStep - 1) / kStep * kStep;
  if (needed <= d.open) return true;
  if (mprotect(d.base + d.open, needed - d.open, PROT_READ | PROT_WRITE) != 0) return false;
  d.open = needed;
  return true;
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

void unpoison(Device& d, std::size_t at, const Piece& piece) {  // to fill its guards
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(d.base + at - kGuard, piece.room + 2 * kGuard);
#else
  static_cast<void>(d), static_cast<void>(at), static_cast<void>(piece);
#endif
}

// Returns the first gap that is large enough.
std::size_t find_gap(const Device& d, std::size_t room) {
  std::size_t at = kGuard;
  for (const auto& [offset, piece] : d.pieces) {
    if (at + room + kGuard + kGuard <= offset) break;
    at = (offset + piece.room + 2 * kGuard + kGuard - 1) / kGuard * kGuard;
  }
  return at;
}

}  // namespace

Turn::Turn() { mutex.lock(); }
Turn::~Turn() { mutex.unlock(); }

void* true_pointer(const void* pointer) {
  const Device& d = device();
  const std::size_t place = place_of(d, pointer);
  return place < kRegion ? d.base + place : const_cast<void*>(pointer);
}

void true_pointers(void* argument, std::size_t bytes) {
  auto* at = static_cast<char*>(argument);
  for (; bytes >= sizeof(void*); at += sizeof(void*), bytes -= sizeof(void*)) {
    void* word;
    std::memcpy(&word, at, sizeof word);
    word = true_pointer(word);
    std::memcpy(at, &word, sizeof word);
  }
}

void guard(void* buffer, std::size_t bytes) {
  const Turn turn;
  Device& d = device();
  const auto found = d.pieces.find(place_of(d, buffer));
  if (found == d.pieces.end() || bytes > found->second.room) {
    throw std::runtime_error("cuda_on_cpu: guard: this is no buffer of the current device");
  }
  unpoison(d, found->first, found->second);
  found->second.used = bytes;
  set_guards(d, found->first, found->second);
  poison(d, found->first, found->second);
}

#ifdef __SANITIZE_ADDRESS__
void check_guards() {}  // the sanitizer stops the program earlier
#else
static bool intact(const char* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (static_cast<unsigned char>(from[i]) != guard_byte(from + i)) return false;
  }
  return true;
}

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

bool in_device(const void* at) {
  const auto* const byte = static_cast<const char*>(at);
  const Device& d = devices[current];
  return d.base != nullptr && byte >= d.base && byte < d.base + d.open;
}

// Few processors by default, so that threads loop several times.
static int multiprocessors = 2;
void set_processors(int count) { multiprocessors = count; }
int processors() { return multiprocessors; }
static int capability_major = 8;
void set_capability(int major) { capability_major = major; }
int capability() { return capability_major; }

}  // namespace cuda_on_cpu

// ---- streams: they delay copies from pinned memory ----

struct cuda_on_cpu_graph {
  std::vector<std::function<void()>> launches;
};

struct cuda_on_cpu_stream {
  int device;
  std::deque<std::function<void()>> waiting;
  std::size_t issued = 0, done = 0;       // numbers of delayed operations
  cuda_on_cpu_graph* recorded = nullptr;  // the graph that captures launches
  bool broken = false;                    // by an operation that cannot be captured
};

struct cuda_on_cpu_event {
  cuda_on_cpu_stream* stream = nullptr;
  std::size_t upto = 0;
};

namespace cuda_on_cpu {
namespace {

std::vector<cuda_on_cpu_stream*> streams;
bool next_fails = false, failed = false;  // kernels: see fail_next_kernel

// As in CUDA, an operation that cannot be captured invalidates the capture.
bool spoils(cuda_on_cpu_stream* stream) {
  if (stream == nullptr || stream->recorded == nullptr) return false;
  return stream->broken = true;
}
struct Pinned {
  std::size_t bytes;
  bool registered;
};
std::map<const char*, Pinned> pinned;
std::int64_t from_registered = 0, waited = 0;

// Returns the pinned memory that contains these bytes, or null.
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

std::int64_t waits() { return waited; }
std::int64_t bytes_from_registered() { return from_registered; }

void fail_next_kernel() { next_fails = true; }

bool failing() {
  failed = failed || next_fails;
  next_fails = false;
  return failed;
}

bool note(cuda_on_cpu_stream* stream, const std::function<void()>& launch) {
  if (stream == nullptr || stream->recorded == nullptr) return false;
  stream->recorded->launches.push_back(launch);
  return true;
}

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
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a stream capture";
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

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  // the capability of a GPU with tensor cores
  *value = attribute == cudaDevAttrMultiProcessorCount ? processors() : capability();
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(mutex);
  streams.push_back(new cuda_on_cpu_stream{current, {}});
  *stream = streams.back();
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  std::erase(streams, stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (spoils(stream)) return cudaErrorStreamCaptureUnsupported;
  ++waited;
  catch_up(stream);
  return std::exchange(failed, false) ? cudaErrorIllegalAddress : cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->recorded != nullptr) return cudaErrorInvalidValue;
  stream->recorded = new cuda_on_cpu_graph;
  stream->broken = false;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(stream->recorded, nullptr);
  if (*graph == nullptr) return cudaErrorInvalidValue;
  if (!stream->broken) return cudaSuccess;
  delete std::exchange(*graph, nullptr);
  return cudaErrorStreamCaptureInvalidated;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = new cuda_on_cpu_graph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  catch_up(stream);
  for (const std::function<void()>& launch : graph->launches) launch();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy(graph); }

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
  if (spoils(stream)) return cudaErrorStreamCaptureUnsupported;  // it would join streams
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
  const Turn turn;
  Device& d = device();
  const std::size_t room = (bytes + kGuard - 1) / kGuard * kGuard;
  const std::size_t at = find_gap(d, room);
  if (d.taken + room > limit || at + room + kGuard > kRegion) return cudaErrorMemoryAllocation;
  if (!open_up(d, at, room)) return cudaErrorMemoryAllocation;
  d.taken += room;
  const Piece& piece = d.pieces[at] = {room, bytes};
  unpoison(d, at, piece);
  set_guards(d, at, piece);
  poison(d, at, piece);
  *pointer = handed_out(d, at);
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  for (cuda_on_cpu_stream* stream : streams) catch_up(stream);
  const Turn turn;
  Device& d = device();
  const auto found = d.pieces.find(place_of(d, pointer));
  if (found == d.pieces.end()) return cudaErrorInvalidValue;
  found->second.used = 0;  // no access is legal any more
  unpoison(d, found->first, found->second);
  set_guards(d, found->first, found->second);
  poison(d, found->first, found->second);
  d.taken -= found->second.room;
  d.pieces.erase(found);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = limit;
  *free = limit - device().taken;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (spoils(stream)) return cudaErrorStreamCaptureUnsupported;
  const auto copy = [=] {
    const Turn turn;
    std::memcpy(true_pointer(to), true_pointer(from), bytes);
    check_guards();
  };
  const Pinned* piece = stream == nullptr ? nullptr : pinned_of(from, bytes);
  // CUDA may stage pageable memory before it returns, but does not have to.
  if (piece != nullptr || (kind == cudaMemcpyHostToDevice && stream != nullptr)) {
    if (piece != nullptr && piece->registered) from_registered += static_cast<std::int64_t>(bytes);
    put_off(stream, copy);
    return cudaSuccess;
  }
  catch_up(stream);
  copy();
  return cudaSuccess;
}
