#include "device.h"

#include <atomic>
#include <mutex>

namespace needle::cuda {
namespace {

std::atomic<bool> waits{false};

struct Device {
  std::once_flag once;
  cudaStream_t stream = nullptr;
  int processors = 1;
};

Device& device_of(int index) {
  static Device devices[kMaxDevices];
  Device& device = devices[index];
  std::call_once(device.once, [&] {
    check(cudaSetDevice(index), "cuda");
    check(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), "cuda");
    check(cudaDeviceGetAttribute(&device.processors, cudaDevAttrMultiProcessorCount, index),
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

}  // namespace

void check(cudaError_t status, const char* op) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that can be survived is not reported twice
  throw DeviceFailure(std::string(op) + ": CUDA reports '" + cudaGetErrorString(status) + "'" +
                      (synchronous() ? ""
                                     : "; an earlier kernel may have caused it: set "
                                       "NEEDLE_CUDA_SYNC=1 to see which"));
}

int device_count() { return count().devices; }
std::string why() { return count().why; }

void use(int device) { check(cudaSetDevice(device), "cuda"); }
int processors(int device) { return device_of(device).processors; }
cudaStream_t stream(int device) { return device_of(device).stream; }
void synchronize(int device) { check(cudaStreamSynchronize(stream(device)), "synchronize"); }

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

// Nothing can be done about an error here, and it would show at the next call.
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

void copy_from_host(int device, void* to, const void* from, std::size_t bytes) {
  use(device);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream(device)), "upload");
}

void copy_to_host(int device, void* to, const void* from, std::size_t bytes) {
  use(device);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream(device)), "download");
  synchronize(device);
}

}  // namespace needle::cuda
