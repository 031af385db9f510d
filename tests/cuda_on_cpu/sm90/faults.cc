// Kernels of sm_90 with one fault each, and their correct forms. They are part of the module
// cuda_faults; test_emulated_sm90.py calls it.
#include <pybind11/stl.h>

#include <cstring>

#include "cuda/sm90/warpgroup_tile.h"
#include "faults.h"

namespace {

using namespace needle::cuda;

// Computes out = a @ b for a[64][32] and the transpose of b[64][32], both in `in`, by one wgmma
// step. Faults: no proxy fence after the stores (`fence`); a store to an operand before the wait
// for wgmma (`early`).
template <Load kLoad>
__global__ void wgmma_kernel(const float* in, float* out, bool fence, bool early) {
  using Tile = WarpgroupTile<Precision::kBf16, 64, 64, 128>;
  using Stage = SwizzledStage<64>;
  NEEDLE_SHARED(a, Stage);
  NEEDLE_SHARED(b, Stage);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 128 * 32; i += Tile::kThreads) {
    const int mn = i < 64 * 32 ? i / 32 : i / 32 - 64, k = i % 32;
    const auto position = kLoad == Load::kKMajor
                              ? Stage::position(std::uint32_t(mn), std::uint32_t(k))
                              : Stage::position(std::uint32_t(mn / 32 * 32 + k), mn % 32);
    (i < 64 * 32 ? a.data : b.data)[position] = static_cast<std::uint16_t>(bf16_of(in[i]));
  }
  if (fence) fence_proxy_async();
  __syncthreads();
  Tile::Accumulator<float, kLoad, kLoad> accumulator;
  accumulator.multiply_add(a, b);
  if (early) a.data[thread] = 0;
  accumulator.fence_and_wait();
  for (int i = 0; i < accumulator.kRows; ++i) {
    for (int j = 0; j < accumulator.kColumns; ++j) {
      out[accumulator.row_of(i) * 64 + accumulator.column_of(j)] = accumulator.sum(i, j);
    }
  }
}

std::vector<float> run_wgmma(const std::vector<float>& in, bool k_major, bool fence, bool early) {
  const Buffer from(in.size()), to(64 * 64);
  std::vector<float> out(64 * 64);
  cudaMemcpyAsync(from.data, in.data(), from.bytes, cudaMemcpyHostToDevice, nullptr);
  cudaLaunchConfig_t config;
  config.blockDim = {128, 1, 1};
  const auto kernel = k_major ? wgmma_kernel<Load::kKMajor> : wgmma_kernel<Load::kMnMajor>;
  cudaLaunchKernelEx(&config, kernel, from.get(), to.get(), fence, early);
  cudaMemcpyAsync(out.data(), to.data, to.bytes, cudaMemcpyDeviceToHost, nullptr);
  return out;
}

// Loads `in`, 4 rows of 64 bytes, to shared memory by TMA, and stores it to `out`.
enum class Mistake { kNone, kNoBarrier, kNoWait, kExpectsMore, kExpectsLess };
__global__ void tma_kernel(const CUtensorMap map, float* out, Mistake mistake) {
  NEEDLE_SHARED(stage, SwizzledStage<32>);
  NEEDLE_SHARED(mbarrier, Mbarrier);
  const int mine = int(threadIdx.x);
  if (mine == 0) {
    mbarrier_init(mbarrier);
    fence_proxy_async();
  }
  if (mistake != Mistake::kNoBarrier) __syncthreads();
  if (mine == 0) {
    mbarrier_expect_tx(mbarrier, mistake == Mistake::kExpectsMore   ? 260
                                 : mistake == Mistake::kExpectsLess ? 252
                                                                    : 256);
    tma_load_tile(&stage, map, {0, 0, 0, 0}, mbarrier);
  }
  if (mistake != Mistake::kNoWait) mbarrier_wait(mbarrier, 0);
  __syncthreads();
  std::memcpy(&out[mine], &stage.data[SwizzledStage<32>::position(mine / 16, mine % 16 * 2)], 4);
  if (mistake == Mistake::kNoWait) mbarrier_wait(mbarrier, 0);
}

std::vector<float> run_tma(const std::vector<float>& in, int mistake) {
  const Buffer from(kThreads), to(kThreads);
  std::vector<float> out(kThreads);
  cudaMemcpyAsync(from.data, in.data(), from.bytes, cudaMemcpyHostToDevice, nullptr);
  const auto map =
      tiled_map(static_cast<const needle::BFloat16*>(static_cast<const void*>(from.get())),
                {{32, 1}, {4, 32}, {}, {}}, 4);
  cudaLaunchConfig_t config;
  config.blockDim = {kThreads, 1, 1};
  cudaLaunchKernelEx(&config, tma_kernel, map.value(), to.get(), static_cast<Mistake>(mistake));
  cudaMemcpyAsync(out.data(), to.data, to.bytes, cudaMemcpyDeviceToHost, nullptr);
  return out;
}

}  // namespace

void bind_sm90_faults(py::module_& m) {
  m.def("run_wgmma", run_wgmma, py::arg("in"), py::arg("k_major"), py::arg("fence") = true,
        py::arg("early") = false);
  m.def("run_tma", run_tma);
}
