// Wraps all calls of the CUDA runtime: devices, streams, memory, copies and launches. Kernels and
// launchers include this file and call no cuda... function themselves. Every call that fails throws
// DeviceFailure, which names the operation.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/not_implemented.h"
#include "core/view.h"

// Declares static shared memory: NEEDLE_SHARED(tile, float[16][17]). It is aligned to 16 bytes or
// to its type's alignment, whichever is larger. The tests' emulator defines it differently.
#ifndef NEEDLE_SHARED
#define NEEDLE_SHARED(name, ...)                                      \
  __shared__ alignas(alignof(std::type_identity_t<__VA_ARGS__>) > 16  \
                         ? alignof(std::type_identity_t<__VA_ARGS__>) \
                         : 16) std::type_identity_t<__VA_ARGS__>      \
      name
// Declares dynamic shared memory for launch_with_shared, at most once in a kernel. It may exceed
// the 48 KB of NEEDLE_SHARED.
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
cudaStream_t copy_stream(int device);  // of copies that overlap with kernels: feed.cu
void synchronize(int device);

// Makes each launch wait for its kernel and report its error (NEEDLE_CUDA_SYNC). Without it an
// error is reported by a later call.
void set_synchronous(bool on);
bool synchronous();

void* take_memory(int device, std::size_t bytes);  // null if the device is out of memory
void give_memory_back(int device, void* memory);
// Declares that only `bytes` are valid. The emulator reports an access beyond them, a GPU cannot.
void mark_end(int device, void* memory, std::size_t bytes);

// Copies in stream order, and waits until the copy has ended.
void copy_to_host(int device, void* to, const void* from, std::size_t bytes);
// Enqueues a copy on stream `on`. A pinned source must not change until the copy has ended.
void copy_later(cudaStream_t on, void* to, const void* from, std::size_t bytes);

// Pins host memory, so that the GPU can read it by DMA.
void pin(void* memory, std::size_t bytes);  // DeviceFailure if it cannot be pinned
void unpin(void* memory) noexcept;
bool is_pinned(const void* memory);
void* take_pinned(std::size_t bytes);
void give_pinned_back(void* memory) noexcept;

// An event: a point in a stream for which other streams and the host can wait.
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

// Stream capture: after begin_recording this thread's launches go into a graph instead of the
// device; other threads are not affected. During capture, functions that wait for the device or
// copy between it and the host throw. The rest of a graph is in graph.h.
void begin_recording(int device);  // DeviceFailure if graphs are not supported
cudaGraphExec_t end_recording();
void abandon_recording() noexcept;
bool recording();
void refuse_while_recording(const char* op);  // DeviceFailure
void launch_graph(int device, cudaGraphExec_t graph);
void drop_graph(cudaGraphExec_t graph) noexcept;

// Runs kernel<<<blocks, threads, shared, stream of the device>>>(arguments...); its error is
// reported under `op`.
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
