#include "device.h"

#include <atomic>
#include <map>
#include <mutex>

namespace needle::cuda {
namespace {

std::atomic<bool> waits{false};

struct Device {
  std::once_flag once;
  cudaStream_t stream = nullptr, copies = nullptr;
  int processors = 1, capability = 0;
};

Device& device_of(int index) {
  static Device devices[kMaxDevices];
  Device& device = devices[index];
  std::call_once(device.once, [&] {
    check(cudaSetDevice(index), "cuda");
    check(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), "cuda");
    check(cudaStreamCreateWithFlags(&device.copies, cudaStreamNonBlocking), "cuda");
    check(cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, index),
          "cuda");
    check(cudaDeviceGetAttribute(&device.capability, cudaDevAttrComputeCapabilityMajor, index),
          "cuda");
  });
  return device;
}

struct Count {
  int devices = 0;
  std::string why;
};

const Count& count() {
  static const Count found = [] {
    Count c;
    const cudaError_t status = cudaGetDeviceCount(&c.devices);
    if (status != cudaSuccess) {
      c.devices = 0;
      c.why = cudaGetErrorString(status);
    } else if (c.devices == 0) {
      c.why = "there is no GPU";
    }
    if (c.devices > kMaxDevices) c.devices = kMaxDevices;
    return c;
  }();
  return found;
}

struct Recording {
  int device = -1;  // none
  cudaStream_t stream = nullptr;
};
thread_local Recording recorded;

// Ends this thread's recording, whatever was recorded.
void forget_recording() {
  static_cast<void>(cudaStreamDestroy(recorded.stream));
  recorded = {};
}

std::mutex pinned_mutex;
std::map<const char*, std::size_t> pinned_pieces;  // where each begins, and its bytes

}  // namespace

void check(cudaError_t status, const char* op) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that it is not reported twice
  throw DeviceFailure(std::string(op) + ": CUDA reports '" + cudaGetErrorString(status) + "'" +
                      (synchronous() ? ""
                                     : "; an earlier kernel may have caused it: set "
                                       "NEEDLE_CUDA_SYNC=1 to see which"));
}

int device_count() { return count().devices; }
std::string why() { return count().why; }

void use(int device) { check(cudaSetDevice(device), "cuda"); }
int processors(int device) {
#ifdef NEEDLE_CUDA_ON_CPU
  return device_of(device), cuda_on_cpu::processors();  // tests change it
#else
  return device_of(device).processors;
#endif
}
int capability(int device) {
#ifdef NEEDLE_CUDA_ON_CPU
  return device_of(device), cuda_on_cpu::capability();
#else
  return device_of(device).capability;
#endif
}
cudaStream_t stream(int device) {
  return device == recorded.device ? recorded.stream : device_of(device).stream;
}
cudaStream_t copy_stream(int device) { return device_of(device).copies; }
void synchronize(int device) {
  refuse_while_recording("synchronize");
  check(cudaStreamSynchronize(stream(device)), "synchronize");
}

void set_synchronous(bool on) { waits.store(on, std::memory_order_relaxed); }
bool synchronous() { return waits.load(std::memory_order_relaxed); }

void* take_memory(int device, std::size_t bytes) {
  use(device);
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "allocate");
  return memory;
}

// An error here cannot be handled; the next call reports it.
void give_memory_back(int device, void* memory) {
  static_cast<void>(cudaSetDevice(device));
  static_cast<void>(cudaFree(memory));
}

void mark_end([[maybe_unused]] int device, [[maybe_unused]] void* memory,
              [[maybe_unused]] std::size_t bytes) {
#ifdef NEEDLE_CUDA_ON_CPU
  use(device);
  cuda_on_cpu::guard(memory, bytes);
#endif
}

void copy_later(cudaStream_t on, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on), "upload");
}

void copy_to_host(int device, void* to, const void* from, std::size_t bytes) {
  refuse_while_recording("download");
  use(device);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream(device)), "download");
  synchronize(device);
}

void pin(void* memory, std::size_t bytes) {
  check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "pin");
  const std::lock_guard lock(pinned_mutex);
  pinned_pieces[static_cast<const char*>(memory)] = bytes;
}

void unpin(void* memory) noexcept {
  {
    const std::lock_guard lock(pinned_mutex);
    pinned_pieces.erase(static_cast<const char*>(memory));
  }
  static_cast<void>(cudaHostUnregister(memory));
}

bool is_pinned(const void* memory) {
  const std::lock_guard lock(pinned_mutex);
  const auto* at = static_cast<const char*>(memory);
  auto next = pinned_pieces.upper_bound(at);
  return next != pinned_pieces.begin() && at < (--next)->first + next->second;
}

void* take_pinned(std::size_t bytes) {  // only feed.cu copies from it, so it is not registered
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "pin");
  return memory;
}

void give_pinned_back(void* memory) noexcept { static_cast<void>(cudaFreeHost(memory)); }

// Memory may be allocated during capture (relaxed mode), since kernels allocate temporaries.
void begin_recording(int device) {
  refuse_while_recording("capture");
  if (synchronous()) {
    throw DeviceFailure("capture: NEEDLE_CUDA_SYNC=1 waits for every kernel, so there is no graph");
  }
  use(device);
  check(cudaStreamCreateWithFlags(&recorded.stream, cudaStreamNonBlocking), "capture");
  const auto status = cudaStreamBeginCapture(recorded.stream, cudaStreamCaptureModeRelaxed);
  if (status != cudaSuccess) forget_recording();
  check(status, "capture");
  recorded.device = device;
}

cudaGraphExec_t end_recording() {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  auto status = cudaStreamEndCapture(recorded.stream, &graph);
  forget_recording();
  if (status == cudaSuccess) status = cudaGraphInstantiate(&made, graph, 0);
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  check(status, "capture");
  return made;
}

void abandon_recording() noexcept {
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaStreamEndCapture(recorded.stream, &graph));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  forget_recording();
  static_cast<void>(cudaGetLastError());
}

bool recording() { return recorded.device >= 0; }

void refuse_while_recording(const char* op) {
  if (!recording()) return;
  throw DeviceFailure(std::string(op) + ": this waits for the host or the device, which a graph " +
                      "of kernels cannot; capture the kernels before and after it");
}

void launch_graph(int device, cudaGraphExec_t graph) {
  refuse_while_recording("capture");
  use(device);
  check(cudaGraphLaunch(graph, stream(device)), "capture");
  if (synchronous()) synchronize(device);
}

void drop_graph(cudaGraphExec_t graph) noexcept { static_cast<void>(cudaGraphExecDestroy(graph)); }

Event::Event(int device) {
  use(device);
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cuda");
}

Event::~Event() { static_cast<void>(cudaEventDestroy(event_)); }

}  // namespace needle::cuda
