// CUDA's runtime on the CPU: src/cuda includes this file as <cuda_runtime.h> when it is built as
// plain C++ for the tests. Keywords of CUDA are macros, a launch runs the grid in this thread
// (block.cc), and the host cannot dereference pointers to device memory (memory.cc). It has only
// what src/cuda uses, and an equivalent of each tensor core instruction: mma and ldmatrix here,
// those of sm_90 in sm90/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define NEEDLE_CUDA_ON_CPU 1

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

struct cuda_on_cpu_stream;

namespace cuda_on_cpu {

// ---- functions for the running thread ----

void block_barrier(int line);
void warp_barrier(unsigned mask, int line);
// Publishes `value` to the warp, waits for its threads and returns the value of thread `lane`.
std::uint64_t exchange(unsigned mask, std::uint64_t value, int lane, int line);
unsigned ballot(unsigned mask, bool vote, int line);
std::array<std::uint64_t, 32> exchange_all(std::uint64_t value, int line);  // of a whole warp
int lane();
// Allocates the block's next piece of shared memory. Every thread of the block gets the same one,
// so all must allocate in one order. It is filled with NaN and has guards around it.
void* shared_memory(std::size_t bytes, bool dynamic);

// cp.async copies 4, 8 or 16 bytes, or writes zeros if `from` is null. The bytes are visible after
// the thread's wait, which leaves the `pending` latest groups in flight. They may arrive earlier:
// at once in reversed order, as late as possible in forward order, and either way in shuffled
// order.
void cp_async(void* to, const void* from, std::size_t bytes);
void cp_async_commit();
void cp_async_wait(unsigned pending);

template <class T>
T& shared(bool dynamic = false) {
  return *static_cast<T*>(shared_memory(sizeof(T), dynamic));
}

template <class T>
T exchanged(unsigned mask, T value, int from, int line) {
  static_assert(sizeof(T) <= 8);
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, from, line);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// ldmatrix.sync.aligned.m8n8.x4.shared.b16, with kTranspose .trans. Which lane provides a row and
// which receives an element follows the PTX ISA, "ldmatrix"; each lane reads its own elements, so
// that watch.cc sees the reads.
template <bool kTranspose>
void ldmatrix(std::uint32_t (&fragment)[4], const void* row) {
  const auto rows = exchange_all(reinterpret_cast<std::uint64_t>(row), 0);
  const int fragment_row = lane() / 4, fragment_column = lane() % 4 * 2;
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t elements[2];
    for (int i = 0; i < 2; ++i) {
      const int row_index = kTranspose ? fragment_column + i : fragment_row;
      const int column = kTranspose ? fragment_row : fragment_column + i;
      elements[i] = reinterpret_cast<const std::uint16_t*>(rows[matrix * 8 + row_index])[column];
    }
    fragment[matrix] = elements[0] | std::uint32_t(elements[1]) << 16;
  }
}

// mma.sync.aligned.m16n8kK.row.col.f32, K = 16 for 16-bit elements or 8 for TF32; `value` converts
// an element's bits to float. The layout of fragments follows the PTX ISA, "Matrix Fragments for
// mma.m16n8k16" and "m16n8k8", independently of the kernels.
template <int kK, class Value>
void mma(float (&sums)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], Value value) {
  constexpr bool kShort = kK == 16;
  const auto low = exchange_all(a[0] | std::uint64_t(a[1]) << 32, 0);
  const auto high = exchange_all(a[2] | std::uint64_t(a[3]) << 32, 1);
  const auto of_b = exchange_all(b[0] | std::uint64_t(b[1]) << 32, 2);
  const auto element = [&](const std::uint64_t* words, int i) {
    if constexpr (kShort) return value(std::uint32_t(words[i / 4] >> i % 4 * 16) & 0xffff);
    return value(std::uint32_t(words[i / 2] >> i % 2 * 32));
  };
  float matrix_a[16][kK], matrix_b[kK][8];
  for (int laneid = 0; laneid < 32; ++laneid) {
    const int groupID = laneid >> 2, threadID_in_group = laneid % 4;
    const std::uint64_t words[] = {low[laneid], high[laneid]};
    for (int i = 0; i < (kShort ? 8 : 4); ++i) {
      const bool first = kShort ? i < 2 || (4 <= i && i < 6) : i == 0 || i == 2;
      const int column = kShort ? threadID_in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)
                                : threadID_in_group + (i < 2 ? 0 : 4);
      matrix_a[first ? groupID : groupID + 8][column] = element(words, i);
    }
    for (int i = 0; i < (kShort ? 4 : 2); ++i) {
      const int row = kShort ? threadID_in_group * 2 + (i & 1) + (i < 2 ? 0 : 8)
                             : threadID_in_group + (i == 0 ? 0 : 4);
      matrix_b[row][groupID] = element(&of_b[laneid], i);
    }
  }
  const int groupID = lane() >> 2, threadID_in_group = lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = i < 2 ? groupID : groupID + 8, column = threadID_in_group * 2 + (i & 1);
    for (int k = 0; k < kK; ++k) sums[i] += matrix_a[row][k] * matrix_b[k][column];
  }
}

// ---- launches; they throw errors of kernels as std::runtime_error ----

// `code`: the kernel's address, which gives its name. `dynamic`: bytes of dynamic shared memory.
void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& kernel, const void* code,
              std::size_t dynamic = 0);

// The order in which blocks, warps, and threads between barriers run.
enum class Order { kForward, kReversed, kShuffled };
void set_order(Order order);
void set_processors(int count);  // multiprocessors of each device
int processors();
void set_capability(int major);  // compute capability of each device, initially 8
int capability();
std::int64_t launches();  // number so far

// ---- accesses (watch.cc), if kernels are compiled with instrumentation ----

// While on, two accesses of a word by different threads without a barrier between them are an error
// if one of them is a write.
void watch_races(bool on);
// While on, accesses are counted for counted().
void count_accesses(bool on);
struct Counted {
  std::string kernel, place;
  bool shared, write;
  std::int64_t accesses;  // of whole warps
  // For device memory, sectors of 32 bytes and the minimum for these bytes. For shared memory,
  // wavefronts (turns of the banks) and their number without conflicts.
  std::int64_t parts, least;
};
std::vector<Counted> counted();
std::string table_of_counts();  // one line per entry
void see_atomic(const void* at, std::size_t bytes, const void* from);
// __threadfence(): makes the thread's writes, and those that a barrier ordered before it, visible
// to blocks that synchronise with it by an atomic operation followed by a fence of theirs.
void see_fence();

// ---- device memory ----

class Turn {  // lock: one grid or copy at a time
 public:
  Turn();
  ~Turn();
};
// Translates a host pointer into the current device's memory to the address that kernels use;
// returns any other pointer unchanged.
void* true_pointer(const void* pointer);
// Translates every word of a kernel's argument: a pointer, or a struct that contains some.
void true_pointers(void* argument, std::size_t bytes);
void guard(void* buffer, std::size_t bytes);  // refills the guards, which nothing may overwrite
void check_guards();                          // throws std::runtime_error if a kernel did
void set_memory_limit(std::size_t bytes);     // per device

// A copy from host memory runs as late as possible: before the next operation that is ordered after
// it in its stream or waits for its event. catch_up runs the stream's pending operations.
void catch_up(struct ::cuda_on_cpu_stream* stream);
// Returns true if the stream is being captured; the launch is then recorded and must not run.
bool note(struct ::cuda_on_cpu_stream* stream, const std::function<void()>& launch);
// Makes the next kernel fail as if it had dereferenced an invalid pointer: its launch succeeds, and
// later calls that check for errors fail until the error has been reported once.
void fail_next_kernel();
bool failing();
std::int64_t waits();                  // of the host for a whole stream, so far
std::int64_t bytes_from_registered();  // copied so far from memory registered by cudaHostRegister

}  // namespace cuda_on_cpu

// Built-in variables of the running thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
#define NEEDLE_SHARED(name, ...) auto& name = ::cuda_on_cpu::shared<__VA_ARGS__>()
#define NEEDLE_DYNAMIC_SHARED(name, ...) auto& name = ::cuda_on_cpu::shared<__VA_ARGS__>(true)

#define __syncthreads() ::cuda_on_cpu::block_barrier(__LINE__)
#define __syncwarp() ::cuda_on_cpu::warp_barrier(0xffffffffu, __LINE__)
#define __shfl_sync(mask, value, from) ::cuda_on_cpu::exchanged(mask, value, from, __LINE__)
#define __shfl_xor_sync(mask, value, bits) \
  ::cuda_on_cpu::exchanged(mask, value, ::cuda_on_cpu::lane() ^ (bits), __LINE__)
#define __shfl_down_sync(mask, value, by)                                                       \
  ::cuda_on_cpu::exchanged(                                                                     \
      mask, value,                                                                              \
      ::cuda_on_cpu::lane() + (by) < 32 ? ::cuda_on_cpu::lane() + (by) : ::cuda_on_cpu::lane(), \
      __LINE__)
#define __ballot_sync(mask, vote) ::cuda_on_cpu::ballot(mask, vote, __LINE__)
#define __any_sync(mask, vote) (::cuda_on_cpu::ballot(mask, vote, __LINE__) != 0)
#define __all_sync(mask, vote) (::cuda_on_cpu::ballot(mask, !(vote), __LINE__) == 0)

inline int __ffs(int word) { return __builtin_ffs(word); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((std::uint64_t(a) * b) >> 32);
}
// One host thread runs the grid, so plain operations are atomic.
template <class T>
__attribute__((noinline, no_sanitize("thread"))) T atomicAdd(T* at, std::type_identity_t<T> value) {
  ::cuda_on_cpu::see_atomic(at, sizeof(T), __builtin_return_address(0));
  const T before = *at;
  *at = before + value;
  return before;
}
__attribute__((noinline, no_sanitize("thread"))) inline unsigned atomicInc(unsigned* at,
                                                                           unsigned most) {
  ::cuda_on_cpu::see_atomic(at, sizeof *at, __builtin_return_address(0));
  const unsigned before = *at;
  *at = before >= most ? 0 : before + 1;
  return before;
}
inline void __threadfence() { ::cuda_on_cpu::see_fence(); }

// ---- the runtime functions that src/cuda calls ----

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorInvalidDevice = 101,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDefault = 4
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostRegisterPortable = 1, cudaHostAllocPortable = 1;
using cudaStream_t = struct cuda_on_cpu_stream*;
using cudaEvent_t = struct cuda_on_cpu_event*;
using cudaGraph_t = struct cuda_on_cpu_graph*;
using cudaGraphExec_t = struct cuda_on_cpu_graph*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  void* attrs = nullptr;
  unsigned numAttrs = 0;
};

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMalloc(void** pointer, std::size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  // Parameters are passed by value; on a GPU all threads see the same copy.
  static_assert((std::is_trivially_copyable_v<std::decay_t<Parameters>> && ...));
  const std::tuple<std::decay_t<Parameters>...> given(static_cast<Parameters>(arguments)...);
  const auto run = [given, kernel, blocks = config->gridDim, threads = config->blockDim,
                    dynamic = config->dynamicSmemBytes] {
    auto copies = given;
    const auto show = [](auto&... copy) { (cuda_on_cpu::true_pointers(&copy, sizeof copy), ...); };
    std::apply(show, copies);
    cuda_on_cpu::run_grid(
        blocks, threads, [&] { std::apply(kernel, copies); }, reinterpret_cast<const void*>(kernel),
        dynamic);
  };
  if (cuda_on_cpu::note(config->stream, run)) return cudaSuccess;
  cuda_on_cpu::catch_up(config->stream);
  if (cuda_on_cpu::failing()) return cudaSuccess;
  run();
  return cudaSuccess;
}

#include "sm90/cuda_runtime_sm90.h"
