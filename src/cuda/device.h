// The only use of CUDA's runtime in src/cuda: devices, streams, memory, copies, launches. Kernels
// and launchers include this file and call no cuda... function themselves. Every call that fails
// throws DeviceFailure, which names the operation.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/not_implemented.h"
#include "core/view.h"

// Shared memory of a block: NEEDLE_SHARED(tile, float[16][17]); it begins at a multiple of 16
// bytes, or of what its type asks for. The tests' emulator of the grid has a form of its own.
#ifndef NEEDLE_SHARED
#define NEEDLE_SHARED(name, ...)                                      \
  __shared__ alignas(alignof(std::type_identity_t<__VA_ARGS__>) > 16  \
                         ? alignof(std::type_identity_t<__VA_ARGS__>) \
                         : 16) std::type_identity_t<__VA_ARGS__>      \
      name
// More than the 48 KB that NEEDLE_SHARED may take in all, for launch_with_shared; once in a kernel.
#define NEEDLE_DYNAMIC_SHARED(name, ...)                            \
  extern __shared__ __align__(1024) unsigned char dynamic_shared[]; \
  auto& name = *reinterpret_cast<std::type_identity_t<__VA_ARGS__>*>(dynamic_shared)
#endif

namespace needle::cuda {

struct DeviceFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;
inline constexpr int kMaxDevices = 16;

void check(cudaError_t status, const char* op);

int device_count();                    // 0 without a driver or a GPU
std::string why();                     // the reason if there is none
void use(int device);                  // the calling thread's device from now on
int processors(int device);            // multiprocessors
int capability(int device);            // the major number: 8 of sm_80
cudaStream_t stream(int device);       // of kernels
cudaStream_t copy_stream(int device);  // of copies that run beside them: feed.cu
void synchronize(int device);

// Launches wait for their kernel and report its error (NEEDLE_CUDA_SYNC); else an error shows at a
// later call.
void set_synchronous(bool on);
bool synchronous();

void* take_memory(int device, std::size_t bytes);  // null where there is no more
void give_memory_back(int device, void* memory);
// Only `bytes` may be accessed: the emulator guards the memory behind them, a GPU cannot.
void mark_end(int device, void* memory, std::size_t bytes);

// In stream order, and waited for: the source may change on return. transfer.h does not wait.
void copy_from_host(int device, void* to, const void* from, std::size_t bytes);
void copy_to_host(int device, void* to, const void* from, std::size_t bytes);  // waits
// In the order of `on`. A source in pinned memory must stay unchanged until the copy has ended.
void copy_later(cudaStream_t on, void* to, const void* from, std::size_t bytes);

// Host memory that the GPU reads by itself.
void pin(void* memory, std::size_t bytes);  // DeviceFailure where it cannot be
void unpin(void* memory) noexcept;
bool is_pinned(const void* memory);
void* take_pinned(std::size_t bytes);
void give_pinned_back(void* memory) noexcept;

// A point in a stream, for other streams and the host to wait for.
class Event {
 public:
  explicit Event(int device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t in) { check(cudaEventRecord(event_, in), "cuda"); }
  void hold(cudaStream_t waiting) const { check(cudaStreamWaitEvent(waiting, event_, 0), "cuda"); }
  void wait(const char* op) const { check(cudaEventSynchronize(event_), op); }

 private:
  cudaEvent_t event_ = nullptr;
};

// Recording: from begin_recording on, launches of this thread go into a graph instead of the
// device; other threads are not affected. Meanwhile functions that wait for the device, or copy
// between it and the host, are refused. The rest of a graph is in graph.h.
void begin_recording(int device);  // DeviceFailure where there can be no graph
cudaGraphExec_t end_recording();
void abandon_recording() noexcept;
bool recording();
void refuse_while_recording(const char* op);  // DeviceFailure
void launch_graph(int device, cudaGraphExec_t graph);
void drop_graph(cudaGraphExec_t graph) noexcept;

// kernel<<<blocks, threads, shared, stream of the device>>>(arguments...), with its error under
// `op`.
template <class... Parameters, class... Arguments>
void launch_with_shared(const char* op, int device, dim3 blocks, dim3 threads, std::size_t shared,
                        void (*kernel)(Parameters...), Arguments&&... arguments) {
  use(device);
  static_assert((sizeof(Parameters) + ... + 0) <= 32764);  // the limit of CUDA 12.1 from sm_70 on
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  config.stream = stream(device);
  if (shared > 0) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)),
          op);
  }
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), op);
  if (synchronous()) check(cudaStreamSynchronize(config.stream), op);
}
template <class... Parameters, class... Arguments>
void launch(const char* op, int device, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  launch_with_shared(op, device, blocks, threads, 0, kernel, arguments...);
}

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace needle::cuda
