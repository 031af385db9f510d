// Kernels with one fault each, which the emulator must find, and their correct forms. They form the
// Python module cuda_faults; test_emulator.py calls it.
#include "faults.h"

#include <pybind11/stl.h>

#include <stdexcept>

#include "cuda/instructions.h"

namespace {

using needle::cuda::AsyncCopy, needle::cuda::cp_async_commit, needle::cuda::cp_async_wait;
using needle::cuda::RegisterCopy;

// Computes out[i] = in[n - 1 - i] through shared memory; `waits`: with the necessary barrier.
__global__ void turn_around(const float* in, float* out, bool waits) {
  NEEDLE_SHARED(all, float[kThreads]);
  all[threadIdx.x] = in[threadIdx.x];
  if (waits) __syncthreads();
  out[threadIdx.x] = all[kThreads - 1 - threadIdx.x];
}

// Reverses the lanes of each warp through shared memory, with __syncwarp.
__global__ void turn_warps_around(const float* in, float* out, bool waits) {
  NEEDLE_SHARED(all, float[kThreads]);
  all[threadIdx.x] = in[threadIdx.x];
  if (waits) __syncwarp();
  out[threadIdx.x] = all[threadIdx.x / 32 * 32 + 31 - threadIdx.x % 32];
}

__global__ void sum_warps(const float* in, float* out) {
  float total = in[threadIdx.x];
  for (int by = 16; by > 0; by /= 2) total += __shfl_xor_sync(0xffffffffu, total, by);
  const float highest = __shfl_sync(0xffffffffu, in[threadIdx.x], 31);
  const unsigned large = __ballot_sync(0xffffffffu, in[threadIdx.x] > 30.0f);
  out[threadIdx.x] = total + 1000 * highest + (large & 1u);
}

// Gives all threads the sum over the block's two warps, twice. `waits`: with the barrier that keeps
// a faster warp from overwriting what the other still reads.
__global__ void sum_twice(const float* in, float* out, bool waits) {
  NEEDLE_SHARED(warps, float[2]);
  for (int turn = 0; turn < 2; ++turn) {
    float total = in[threadIdx.x] + turn;
    for (int by = 16; by > 0; by /= 2) total += __shfl_xor_sync(0xffffffffu, total, by);
    if (waits) __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
    __syncthreads();
    if (turn == 0) out[threadIdx.x] = warps[0] + warps[1];
  }
}

__global__ void uninitialised_shared(const float*, float* out) {
  NEEDLE_SHARED(all, float[kThreads]);
  if (threadIdx.x > 0) all[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = all[threadIdx.x];
}

__global__ void behind_shared(const float* in, float* out) {
  NEEDLE_SHARED(all, float[kThreads]);
  all[threadIdx.x + 1] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = all[threadIdx.x];
}

__global__ void behind_buffer(const float* in, float* out) {
  out[threadIdx.x + 1] = in[threadIdx.x];
}
__global__ void before_buffer(const float* in, float* out) {
  out[int(threadIdx.x) - 1] = in[threadIdx.x];
}

// Makes two out-of-bounds loads and uses their values.
__global__ void reads_behind_buffer(const float* in, float* out) {
  out[threadIdx.x] = in[threadIdx.x + 1] + 1.0f;
}
__global__ void reads_before_buffer(const float* in, float* out) {
  out[threadIdx.x] = in[int(threadIdx.x) - 1] + 1.0f;
}
__global__ void reads_behind_shared(const float* in, float* out) {
  NEEDLE_SHARED(all, float[kThreads]);
  const float* const pointer = all;
  all[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = pointer[threadIdx.x + 1] + 1.0f;
}
__global__ void reads_far_away(const float* in, float* out) {
  out[threadIdx.x] = in[threadIdx.x + (std::size_t(1) << 30)];
}

void wait_for_all() {
  cp_async_commit();
  cp_async_wait<0>();
}

// Copies in[n - 1 - i] asynchronously to shared memory, then in[i] to the same buffer. `waits`:
// also waits for the second copies before reading them.
template <template <class> class Copy>
__global__ void copy_twice(const float* in, float* out, bool waits) {
  NEEDLE_SHARED(all, float[kThreads]);
  const int mine = int(threadIdx.x), other = kThreads - 1 - mine;
  Copy<float> copy;
  copy.start(&all[mine], &in[mine], true);
  wait_for_all();
  copy.finish(&all[mine]);
  __syncthreads();
  const float first = all[other];
  __syncthreads();
  copy.start(&all[mine], &in[other], mine != 0);
  if (waits) wait_for_all();
  copy.finish(&all[mine]);
  __syncthreads();
  out[mine] = 1000 * first + all[other];
  if (!waits) wait_for_all();
}

// Copies asynchronously in two groups. `enough`: waits for the first group before reading it.
__global__ void copy_in_groups(const float* in, float* out, bool enough) {
  NEEDLE_SHARED(all, float[2][kThreads]);
  const int mine = int(threadIdx.x), other = kThreads - 1 - mine;
  for (int i = 0; i < 2; ++i) {
    AsyncCopy<float>().start(&all[i][mine], &in[i == 0 ? mine : other], true);
    cp_async_commit();
  }
  enough ? cp_async_wait<1>() : cp_async_wait<2>();
  __syncthreads();
  const float first = all[0][other];
  cp_async_wait<0>();
  __syncthreads();
  out[mine] = 1000 * first + all[1][other];
}

// Starts the next copy into a buffer that is still being read.
__global__ void copy_too_early(const float* in, float* out) {
  NEEDLE_SHARED(all, float[kThreads]);
  const int mine = int(threadIdx.x);
  AsyncCopy<float> copy;
  all[mine] = in[mine];
  copy.start(&all[mine], &in[kThreads - 1 - mine], true);
  out[mine] = all[mine];
  wait_for_all();
}

__global__ void never_waits(const float* in, float*) {
  NEEDLE_SHARED(all, float[kThreads]);
  AsyncCopy<float>().start(&all[threadIdx.x], &in[threadIdx.x], true);
}

__global__ void half_wait(const float* in, float* out) {
  if (threadIdx.x < kThreads / 2) __syncthreads();
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void two_barriers(const float* in, float* out) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void lanes_missing(const float* in, float* out) {
  if (threadIdx.x % 2 == 0) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, in[threadIdx.x], 1);
}

__global__ void throws(const float*, float*) {
  if (threadIdx.x == 5) throw std::runtime_error("thrown by a thread");
  __syncthreads();
}

__global__ void count_threads(const float*, float* out) { atomicAdd(out, 1.0f); }

// ---- races whose result is right in each order that runs threads one after the other ----

// Computes the block's sum in shared memory; `atomic`: by atomic additions, which are necessary.
__global__ void sum_in_place(const float* in, float* out, bool atomic) {
  NEEDLE_SHARED(sum, float);
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  if (atomic) {
    atomicAdd(&sum, in[threadIdx.x]);
  } else {
    sum += in[threadIdx.x];
  }
  __syncthreads();
  out[threadIdx.x] = sum;
}

// Computes the sum over all blocks in device memory: each adds to an element that the host has
// zeroed.
__global__ void sum_of_blocks(const float* in, float* out, bool atomic) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) out[1] = 0;
  const float mine = in[blockIdx.x];
  if (atomic) {
    atomicAdd(&out[0], mine);
  } else {
    out[0] += mine;
  }
}

// The last block to finish adds up what each block wrote. `fences`: one before the atomic operation
// (bit 1), one after it (bit 2).
__device__ unsigned finished;  // blocks
__global__ void sum_by_last_block(const float* in, float* out, int fences) {
  NEEDLE_SHARED(last, bool);
  if (threadIdx.x == 1) out[1 + blockIdx.x] = in[blockIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    if (fences & 1) __threadfence();
    last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    if (fences & 2) __threadfence();
  }
  __syncthreads();
  if (!last || threadIdx.x != 2) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += out[1 + i];
  out[0] = sum;
}

// Each lane reads what its neighbour wrote before a shuffle, which does not order
// memory.
__global__ void after_a_shuffle(const float* in, float* out, bool barrier) {
  NEEDLE_SHARED(all, float[kThreads]);
  all[threadIdx.x] = in[threadIdx.x];
  const float other = __shfl_xor_sync(0xffffffffu, in[threadIdx.x], 1);
  if (barrier) __syncwarp();
  out[threadIdx.x] = all[threadIdx.x ^ 1] - other;
}

// Threads that access different bytes of one word do not race.
__global__ void write_bytes(const float*, float* out) {
  reinterpret_cast<unsigned char*>(out)[threadIdx.x] = static_cast<unsigned char>(threadIdx.x);
}

// Runs one mma of a warp: `words` holds 4 words of a and 2 of b for each lane, out its 4 sums.
template <int kK>
__global__ void mma_kernel(const std::uint32_t* words, float* out) {
  std::uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = words[threadIdx.x * 6 + i];
  for (int i = 0; i < 2; ++i) b[i] = words[threadIdx.x * 6 + 4 + i];
  float sums[4] = {};
  constexpr auto kPrecision =
      kK == 8 ? needle::cuda::Precision::kTf32 : needle::cuda::Precision::kBf16;
  needle::cuda::mma_sync<kPrecision>(sums, a, b);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = sums[i];
}

// Loads four 8 x 8 matrices, stored by rows in shared memory; out: the fragment of each lane.
template <bool kTranspose>
__global__ void ldmatrix_kernel(const std::uint32_t* matrices, std::uint32_t* out) {
  NEEDLE_SHARED(rows, std::uint32_t[32][4]);
  for (int i = 0; i < 4; ++i) rows[threadIdx.x][i] = matrices[threadIdx.x * 4 + i];
  __syncthreads();
  std::uint32_t words[4];
  needle::cuda::ldmatrix<kTranspose>(words, rows[threadIdx.x]);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = words[i];
}

// ---- accesses that cost more than necessary ----

using needle::cuda::Float4;

// Lanes access elements `step` apart, in device memory and then in shared memory.
__global__ void strided(const float* in, float* out, int step) {
  NEEDLE_SHARED(all, float[kThreads * 32]);
  all[threadIdx.x * step] = in[threadIdx.x * step % kThreads];
  __syncthreads();
  out[threadIdx.x] = all[threadIdx.x * step];
}
__global__ void by_fours(const float* in, float* out) {
  if (threadIdx.x >= kThreads / 4) return;
  reinterpret_cast<Float4*>(out)[threadIdx.x] = reinterpret_cast<const Float4*>(in)[threadIdx.x];
}

std::vector<float> one_mma(const std::vector<std::uint32_t>& words, int depth) {
  const Buffer from(words.size()), to(32 * 4);
  std::vector<float> out(32 * 4);
  cudaMemcpyAsync(from.data, words.data(), from.bytes, cudaMemcpyHostToDevice, nullptr);
  cudaLaunchConfig_t config;
  config.blockDim = {32, 1, 1};
  cudaLaunchKernelEx(&config, depth == 8 ? mma_kernel<8> : mma_kernel<16>,
                     static_cast<const std::uint32_t*>(from.data), to.get());
  cudaMemcpyAsync(out.data(), to.data, to.bytes, cudaMemcpyDeviceToHost, nullptr);
  return out;
}

std::vector<std::uint32_t> one_ldmatrix(const std::vector<std::uint32_t>& matrices,
                                        bool transpose) {
  const Buffer from(matrices.size()), to(matrices.size());
  std::vector<std::uint32_t> out(matrices.size());
  cudaMemcpyAsync(from.data, matrices.data(), from.bytes, cudaMemcpyHostToDevice, nullptr);
  cudaLaunchConfig_t config;
  config.blockDim = {32, 1, 1};
  cudaLaunchKernelEx(&config, transpose ? ldmatrix_kernel<true> : ldmatrix_kernel<false>,
                     static_cast<const std::uint32_t*>(from.data),
                     static_cast<std::uint32_t*>(to.data));
  cudaMemcpyAsync(out.data(), to.data, to.bytes, cudaMemcpyDeviceToHost, nullptr);
  return out;
}

using Floats = std::vector<float>;
const struct {
  const char* name;
  void (*kernel)(const float*, float*);
} kKernels[] = {
    {"sum_warps", sum_warps},
    {"uninitialised_shared", uninitialised_shared},
    {"behind_shared", behind_shared},
    {"behind_buffer", behind_buffer},
    {"before_buffer", before_buffer},
    {"reads_behind_buffer", reads_behind_buffer},
    {"reads_before_buffer", reads_before_buffer},
    {"reads_behind_shared", reads_behind_shared},
    {"reads_far_away", reads_far_away},
    {"copy_too_early", copy_too_early},
    {"never_waits", never_waits},
    {"half_wait", half_wait},
    {"two_barriers", two_barriers},
    {"lanes_missing", lanes_missing},
    {"throws", throws},
    {"count_threads", count_threads},
    {"write_bytes", write_bytes},
    {"by_fours", by_fours},
};

}  // namespace

PYBIND11_MODULE(cuda_faults, m) {
  for (const auto& row : kKernels) {
    m.def(row.name, [kernel = row.kernel](const Floats& in) { return run(in, kernel); });
  }
  m.def("turn_around", [](const Floats& in, bool waits) { return run(in, turn_around, waits); });
  m.def("turn_warps_around",
        [](const Floats& in, bool waits) { return run(in, turn_warps_around, waits); });
  m.def("sum_twice", [](const Floats& in, bool waits) { return run(in, sum_twice, waits); });
  m.def("copy_twice",
        [](const Floats& in, bool waits) { return run(in, copy_twice<AsyncCopy>, waits); });
  m.def("copy_in_groups",
        [](const Floats& in, bool enough) { return run(in, copy_in_groups, enough); });
  m.def("copy_twice_by_registers",
        [](const Floats& in, bool waits) { return run(in, copy_twice<RegisterCopy>, waits); });
#ifdef __SANITIZE_ADDRESS__
  m.attr("under_address_sanitizer") = true;
#else
  m.attr("under_address_sanitizer") = false;
#endif
  m.def("touch_on_host", [] { return Buffer(4).get()[0]; });
  m.def("sum_in_place",
        [](const Floats& in, bool atomic) { return run(in, sum_in_place, atomic); });
  m.def("sum_of_blocks",
        [](const Floats& in, bool atomic) { return run_blocks(4, in, sum_of_blocks, atomic); });
  m.def("sum_by_last_block",
        [](const Floats& in, int fences) { return run_blocks(4, in, sum_by_last_block, fences); });
  m.def("after_a_shuffle",
        [](const Floats& in, bool barrier) { return run(in, after_a_shuffle, barrier); });
  m.def("one_mma", one_mma);
  m.def("one_ldmatrix", one_ldmatrix);
  bind_sm90_faults(m);
  m.def("strided", [](const Floats& in, int step) { return run(in, strided, step); });
  m.def("set_order",
        [](int order) { cuda_on_cpu::set_order(static_cast<cuda_on_cpu::Order>(order)); });
  m.def("watch_races", &cuda_on_cpu::watch_races);
  m.def("counted", [](const py::function& kernel) {
    cuda_on_cpu::count_accesses(true);
    kernel();
    cuda_on_cpu::count_accesses(false);
    std::vector<py::tuple> rows;
    for (const auto& c : cuda_on_cpu::counted()) {
      rows.push_back(
          py::make_tuple(c.kernel, c.place, c.shared, c.write, c.accesses, c.parts, c.least));
    }
    return rows;
  });
}
