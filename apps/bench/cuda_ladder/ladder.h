// The common part of both ladders on a GPU: device memory, the steps as kernels, and the program.
// Its output is that of the CPU's ladders (../ladder.h): a line with the limits of the GPU, then a
// line for each step. `check` only compares every step with step 00.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <string>

#include "../ladder.h"
#include "cuda/kernels.h"
#include "cuda/precision.h"
#include "step00_naive.h"
#include "step01_tiled.h"
#include "step02_registers.h"
#include "step03_vectorised.h"
#include "step04_tensor_cores.h"
#include "step05_rounded.h"

namespace ladder {

// Memory of the first GPU; copies are synchronous.
class OnDevice {
 public:
  explicit OnDevice(long count) : bytes_(std::size_t(count) * sizeof(float)) {
    data_ = needle::cuda::take_memory(0, bytes_);
    if (data_ == nullptr) throw needle::cuda::DeviceFailure("ladder: the GPU's memory is full");
  }
  explicit OnDevice(const std::vector<float>& values) : OnDevice(long(values.size())) {
    needle::cuda::copy_later(needle::cuda::stream(0), data_, values.data(), bytes_);
    needle::cuda::synchronize(0);
  }
  ~OnDevice() { needle::cuda::give_memory_back(0, data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  float* data() const { return static_cast<float*>(data_); }
  std::vector<float> values() const {
    std::vector<float> result(bytes_ / sizeof(float));
    needle::cuda::copy_to_host(0, result.data(), data_, bytes_);
    return result;
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

// A compact array in device memory.
inline needle::View view_of(const OnDevice& memory, needle::DType dtype,
                            std::initializer_list<long> shape) {
  needle::View v;
  v.data = memory.data();
  v.dtype = dtype;
  v.ndim = int(shape.size());
  std::copy(shape.begin(), shape.end(), v.shape);
  std::int64_t stride = 1;
  for (int i = v.ndim - 1; i >= 0; stride *= v.shape[i--]) v.strides[i] = stride;
  return v;
}
inline void convert(const OnDevice& from, needle::DType dtype, const OnDevice& to,
                    needle::DType wanted, long count) {
  needle::cuda::copy(view_of(from, dtype, {count}), view_of(to, wanted, {count}));
}
constexpr auto kFloat32 = needle::DType::kFloat32;
constexpr auto kStored = needle::DType::kBFloat16;

template <class Step, class A, class B, class C>
__global__ void __launch_bounds__(Step::kThreads)
    step_kernel(const __grid_constant__ A a, const __grid_constant__ B b,
                const __grid_constant__ C c, const __grid_constant__ Shape shape) {
  Step::run(a, b, c, shape);
}

template <class Step, class A, class B, class C>
void launch_step(const A& a, const B& b, const C& c, const Shape& shape) {
  needle::cuda::launch("ladder", 0, Step::grid(shape), {Step::kThreads}, step_kernel<Step, A, B, C>,
                       a, b, c, shape);
}

// Numbers with few bits, whose products are exact in every precision: steps then differ only in
// the order of their sums.
inline std::vector<float> few_bits(long n, unsigned seed) {
  std::vector<float> values = numbers(n, seed);
  for (float& v : values) v = std::rint(v * 8) / 8;
  return values;
}

template <class Problem>
struct Step {
  const char* name;
  void (*run)(const Problem&);  // null: the problem has no such step
  double intensity;             // FLOP per byte from the GPU's memory or its second-level cache
  const char* precision = "float32";
  bool warpgroups = false;                   // runs on sm_90 alone
  void (*finish)(const Problem&) = nullptr;  // converts a result in bfloat16, untimed
};

// The arithmetic intensity of a tile of rows x columns with float32 operands.
constexpr double intensity(double rows, double columns) {
  return 2 * rows * columns / (4 * (rows + columns));
}

// The last steps of a ladder are the library's kernel in three precisions, and with arrays stored
// in bfloat16, which TMA loads on sm_90 (src/cuda/sm90/tma_tile.h). A convolution then writes the
// moments of its result for batch norm, too (src/cuda/moments.h): their cost replaces that of a
// pass that reads the result. Kernels of sm_90 are opt-in here too: NEEDLE_CUDA_SM90=on.
template <class Problem>
constexpr Step<Problem> kSteps[] = {
    {"00 naive", Problem::template step<Naive>, 0.25},
    {"01 tiled", Problem::template step<Tiled>, intensity(16, 16)},
    {"02 registers", Problem::template step<Registers>, intensity(64, 64)},
    {"03 vectorised", Problem::template step<Vectorised>, intensity(128, 128)},
    {"04 tensor cores", Problem::template step<TensorCores>, intensity(128, 64)},
    {"05 rounded once, bf16", Problem::template step<ByWarps>, intensity(128, 128)},
    {"06 warpgroups, bf16", Problem::template step<ByWarpgroups>, intensity(128, 128), "float32",
     true},
    {"07 production", Problem::production, intensity(128, Problem::kColumns)},
    {"08 production, tf32", Problem::production, intensity(128, Problem::kColumns), "tf32"},
    {"09 production, bf16", Problem::production, intensity(128, Problem::kColumns), "bf16"},
    {"10 stored in bf16", Problem::stored, 2 * intensity(128, Problem::kColumns), "bf16", false,
     Problem::finish},
    {"11 with moments", Problem::with_moments, 2 * intensity(128, Problem::kColumns), "bf16", false,
     Problem::finish},
};

// Returns true if the step was requested and can run on this GPU.
template <class Problem>
bool runs(const Step<Problem>& step, const char* wanted) {
  return step.run != nullptr && asked(step.name, wanted) &&
         (!step.warpgroups || needle::cuda::uses_sm90(0)) &&
         (step.finish == nullptr || needle::cuda::has_tensor_cores(0));
}

template <class Problem>
void run_step(const Step<Problem>& step, const Problem& problem) {
  needle::cuda::set_precision(step.precision);
  step.run(problem);
  needle::cuda::synchronize(0);
}

// Compares every step with step 00.
template <class Problem>
bool agree(const Problem& problem, const char* wanted) {
  run_step(kSteps<Problem>[0], problem);
  const std::vector<float> want = problem.out.values();
  bool fine = true;
  for (const Step<Problem>& step : kSteps<Problem>) {
    if (!runs(step, wanted)) continue;
    const std::vector<float> nothing(want.size(), NAN);
    needle::cuda::copy_later(needle::cuda::stream(0), problem.out.data(), nothing.data(),
                             nothing.size() * sizeof(float));
    needle::cuda::synchronize(0);
    run_step(step, problem);
    if (step.finish != nullptr) step.finish(problem);
    const std::vector<float> got = problem.out.values();
    double error = 0;
    for (std::size_t e = 0; e < got.size(); ++e) {
      double difference = std::fabs(double(got[e]) - want[e]);
      if (step.finish != nullptr) difference -= std::fabs(want[e]) / 256;  // one rounding
      if (!(difference <= error)) error = difference;
    }
    if (error <= 1e-6 * problem.shape().k) continue;
    std::printf("%s differs by %g for %s\n", step.name, error, problem.name().c_str());
    fine = false;
  }
  return fine;
}

constexpr int kChains = 8, kRepeats = 4096, kPeakThreads = 256;

// Independent chains of multiply-adds.
static __global__ void chains_kernel(float* out, float factor) {
  float sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = factor * float(i);
  for (int r = 0; r < kRepeats; ++r) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + factor;
  }
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += sums[i];
  out[blockIdx.x * kPeakThreads + threadIdx.x] = sum;
}
static __global__ void copy_kernel(const Float4* from, Float4* to, long count) {
  const long e = long(blockIdx.x) * kPeakThreads + threadIdx.x;
  if (e < count) to[e] = from[e];
}

inline void print_gpu_limits() {
  const unsigned blocks = unsigned(needle::cuda::processors(0)) * 8;
  const long count = 1L << 25;
  const OnDevice from(4 * count), to(4 * count);
  const double computing = seconds_of([&] {
    needle::cuda::launch("ladder", 0, {blocks}, {kPeakThreads}, chains_kernel, to.data(), 0.999f);
    needle::cuda::synchronize(0);
  });
  const double moving = seconds_of([&] {
    needle::cuda::launch("ladder", 0, {unsigned(count / kPeakThreads)}, {kPeakThreads}, copy_kernel,
                         reinterpret_cast<const Float4*>(from.data()),
                         reinterpret_cast<Float4*>(to.data()), count);
    needle::cuda::synchronize(0);
  });
  std::printf("{\"peak\": %.4g, \"memory\": %.4g}\n",
              2.0 * kChains * kRepeats * kPeakThreads * blocks / computing, 32.0 * count / moving);
}

template <class Problem>
int run_program(int count, char** arguments) {
  if (needle::cuda::device_count() == 0) throw needle::cuda::DeviceFailure(needle::cuda::why());
#ifdef NEEDLE_CUDA_ON_CPU
  cuda_on_cpu::set_capability(9);
  needle::cuda::enable_sm90(true);
#else
  const char* const sm90 = std::getenv("NEEDLE_CUDA_SM90");
  needle::cuda::enable_sm90(sm90 != nullptr && std::strcmp(sm90, "on") == 0);
#endif
  if (count > 1 && std::strcmp(arguments[1], "check") == 0) {
    bool fine = true;
    for (const auto& shape : Problem::kShapes) {
      fine = agree(Problem(shape), count > 2 ? arguments[2] : nullptr) && fine;
    }
    return fine ? 0 : 1;
  }
  const Problem problem(Problem::of_size(count > 1 ? std::atoi(arguments[1]) : Problem::kSize));
  print_gpu_limits();
  for (const Step<Problem>& step : kSteps<Problem>) {
    if (!runs(step, count > 3 ? arguments[3] : nullptr)) continue;
    print_step(step.name, 1, seconds_of([&] { run_step(step, problem); }), step.intensity);
  }
  return 0;
}

// Usage: check [STEP] | SIZE THREADS [STEP]; THREADS is ignored on a GPU.
template <class Problem>
int climb(int count, char** arguments) {
  try {
    return run_program<Problem>(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "no ladder on the GPU: %s\n", error.what());
    return 1;
  }
}

}  // namespace ladder
