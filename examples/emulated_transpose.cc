// Transposes a matrix with CUDA kernels that run on the CPU: three correct kernels and one with a
// race, and what the emulator reports on each. docs/internals/cuda.md explains it. From the
// repository's root, with g++ on Linux:
//
//   E=tests/cuda_on_cpu
//   g++ -std=c++20 -O1 -g1 -fsanitize=thread -I$E -c examples/emulated_transpose.cc -o /tmp/t.o
//   g++ -std=c++20 -O1 -I$E /tmp/t.o $E/[bmw]*.cc $E/sm90/[tw]*.cc -o /tmp/t && /tmp/t
#include <cuda_runtime.h>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr int kSize = 64, kTile = 32;

// Writes of neighbouring lanes are 64 elements apart.
__global__ void straight(const float* in, float* out) {
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  out[x * kSize + y] = in[y * kSize + x];
}

// Uses shared memory, so that reads and writes are rows. kWidth = 32 puts a column in one bank.
template <int kWidth, bool kBarrier>
__global__ void tiled(const float* in, float* out) {
  NEEDLE_SHARED(tile, float[kTile][kWidth]);
  const int left = blockIdx.x * kTile, top = blockIdx.y * kTile;
  tile[threadIdx.y][threadIdx.x] = in[(top + threadIdx.y) * kSize + left + threadIdx.x];
  if (kBarrier) __syncthreads();
  out[(left + threadIdx.y) * kSize + top + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

void run(const char* name, void (*kernel)(const float*, float*)) {
  std::vector<float> host(kSize * kSize), got(host.size());
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = float(i);
  void *in, *out;
  cudaMalloc(&in, host.size() * sizeof(float));
  cudaMalloc(&out, host.size() * sizeof(float));
  cudaMemcpyAsync(in, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice, nullptr);
  cudaLaunchConfig_t config;
  config.gridDim = {kSize / kTile, kSize / kTile, 1};
  config.blockDim = {kTile, kTile, 1};
  std::printf("%s\n", name);
  try {
    cuda_on_cpu::watch_races(true);
    cuda_on_cpu::count_accesses(true);
    cudaLaunchKernelEx(&config, kernel, static_cast<const float*>(in), static_cast<float*>(out));
    cudaMemcpyAsync(got.data(), out, got.size() * sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    int wrong = 0;
    for (int i = 0; i < kSize * kSize; ++i) {
      wrong += got[i % kSize * kSize + i / kSize] != host[i];
    }
    std::printf("%d elements are wrong\n%s\n", wrong, cuda_on_cpu::table_of_counts().c_str());
  } catch (const std::exception& found) {
    std::printf("%s\n", found.what());
  }
  cudaFree(in);
  cudaFree(out);
}

}  // namespace

int main() {
  run("straight", straight);
  run("tiled", tiled<kTile, true>);
  run("tiled, rows one longer", tiled<kTile + 1, true>);
  run("tiled, without its barrier", tiled<kTile + 1, false>);
}
