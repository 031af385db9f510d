// Shared by faults.cc and sm90/faults.cc: buffers in device memory and launches on vectors.
#pragma once

#include <pybind11/pybind11.h>

#include <new>
#include <vector>

#include "cuda_runtime.h"

namespace py = pybind11;

inline constexpr int kThreads = 64;

struct Buffer {
  explicit Buffer(std::size_t size) : bytes(size * sizeof(float)) {
    if (cudaMalloc(&data, bytes) != cudaSuccess) throw std::bad_alloc();
  }
  ~Buffer() { static_cast<void>(cudaFree(data)); }
  float* get() const { return static_cast<float*>(data); }
  void* data = nullptr;
  std::size_t bytes;
};

// Runs a kernel on `in` and returns its output buffer of the same size.
template <class... More>
std::vector<float> run_blocks(unsigned blocks, const std::vector<float>& in,
                              void (*kernel)(const float*, float*, More...), More... more) {
  const Buffer from(in.size()), to(in.size());
  std::vector<float> out(in.size());
  cudaMemcpyAsync(from.data, in.data(), from.bytes, cudaMemcpyHostToDevice, nullptr);
  cudaLaunchConfig_t config;
  config.gridDim = {blocks, 1, 1};
  config.blockDim = {kThreads, 1, 1};
  cudaLaunchKernelEx(&config, kernel, from.get(), to.get(), more...);
  cudaMemcpyAsync(out.data(), to.data, to.bytes, cudaMemcpyDeviceToHost, nullptr);
  return out;
}
template <class... More>
std::vector<float> run(const std::vector<float>& in, void (*kernel)(const float*, float*, More...),
                       More... more) {
  return run_blocks(1, in, kernel, more...);
}

void bind_sm90_faults(py::module_& m);
