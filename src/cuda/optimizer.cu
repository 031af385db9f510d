// One step of SGD or Adam over many parameters in one launch. Their addresses and sizes are the
// kernel's argument. A block looks up its parameter and updates kElementsOfBlock elements of it,
// each read and written once, so memory bandwidth is the limit. A thread loads four elements of
// every array before it stores one, since the outputs may be the inputs. Views are compact.
#include "core/adam.h"
#include "kernels.h"
#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kStepThreads = 256;
constexpr std::uint32_t kEach = 4;  // loads of a thread before its first store
constexpr std::uint32_t kElementsOfBlock = 2 * kEach * kStepThreads;
// Kernel arguments may have 32 764 bytes. The limit is smaller in the emulator, so that tests cover
// more than one launch.
#ifdef NEEDLE_CUDA_ON_CPU
constexpr std::size_t kMostParameters = 3;
#else
constexpr std::size_t kMostParameters = 512;
#endif

template <class T>
struct Parameter {
  const T *param, *grad;
  T *first, *second, *out;  // moments; `first` is SGD's velocity, null without momentum
  std::int64_t size;
  std::uint32_t first_block;
};

template <class T>
struct Parameters {
  std::uint32_t count;
  Parameter<T> items[kMostParameters];

  __device__ const Parameter<T>& of_block(std::uint32_t block) const {
    std::uint32_t low = 0, high = count;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (items[middle].first_block <= block ? low : high) = middle;
    }
    return items[low];
  }
};

// Rule::step(constants, param, grad, first, second) returns the new parameter and updates the
// moments.
template <class T, class Rule>
__global__ void __launch_bounds__(kStepThreads)
    step_kernel(const __grid_constant__ Parameters<T> all, const __grid_constant__ Rule rule) {
  /// BEGIN SOLUTION [cuda-sgd]
  const Parameter<T>& p = all.of_block(blockIdx.x);
  const std::int64_t begin = std::int64_t(blockIdx.x - p.first_block) * kElementsOfBlock;
  const std::int64_t end = std::min(begin + kElementsOfBlock, p.size);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kEach * kStepThreads) {
    T param[kEach] = {}, grad[kEach] = {}, first[kEach] = {}, second[kEach] = {};
#pragma unroll
    for (std::uint32_t j = 0; j < kEach; ++j) {
      const std::int64_t element = i + j * kStepThreads;
      if (element >= end) continue;
      param[j] = p.param[element];
      grad[j] = p.grad[element];
      if constexpr (Rule::kMoments > 0) first[j] = p.first[element];
      if constexpr (Rule::kMoments > 1) second[j] = p.second[element];
    }
#pragma unroll
    for (std::uint32_t j = 0; j < kEach; ++j) {
      const std::int64_t element = i + j * kStepThreads;
      if (element >= end) continue;
      p.out[element] = rule.step(param[j], grad[j], first[j], second[j]);
      if constexpr (Rule::kMoments > 0) p.first[element] = first[j];
      if constexpr (Rule::kMoments > 1) p.second[element] = second[j];
    }
  }
  /// END SOLUTION
}

template <class T>
struct Sgd {
  static constexpr int kMoments = 0;
  T lr, decay;
  __device__ T step(T param, T grad, T&, T&) const { return param - lr * (grad + decay * param); }
};

template <class T>
struct SgdMomentum {
  static constexpr int kMoments = 1;
  T lr, decay, momentum, fresh;
  bool nesterov;
  __device__ T step(T param, T grad, T& velocity, T&) const {
    const T g = grad + decay * param;
    velocity = momentum * velocity + fresh * g;
    return param - lr * (nesterov ? g + momentum * velocity : velocity);
  }
};

template <class T>
struct AdamMoments : Adam<T> {
  using Adam<T>::Adam;
  static constexpr int kMoments = 2;
};

template <class T, class Rule>
void step_all(const char* op, Views params, Views grads, Views firsts, Views seconds, Views outs,
              const Rule& rule) {
  for (std::size_t next = 0; next < params.size();) {
    Parameters<T> batch{};
    std::uint32_t blocks = 0;
    for (; next < params.size() && batch.count < kMostParameters; ++next) {
      const std::int64_t size = size_of(params[next]);
      if (size == 0) continue;
      batch.items[batch.count++] = {data_of<const T>(params[next]),
                                    data_of<const T>(grads[next]),
                                    firsts.empty() ? nullptr : data_of<T>(firsts[next]),
                                    seconds.empty() ? nullptr : data_of<T>(seconds[next]),
                                    data_of<T>(outs[next]),
                                    size,
                                    blocks};
      blocks += static_cast<std::uint32_t>(ceil_div<std::int64_t>(size, kElementsOfBlock));
    }
    if (blocks == 0) return;
    launch(op, params[0].device, {blocks}, {kStepThreads}, step_kernel<T, Rule>, batch, rule);
  }
}

}  // namespace

void sgd_step(Views params, Views grads, Views velocities, Views outs, const SgdParams& s) {
  if (params.empty()) return;
  with_float(params[0].dtype, [&]<class T>(Tag<T>) {
    if (velocities.empty()) {
      const Sgd<T> rule{T(s.lr), T(s.weight_decay)};
      return step_all<T>("sgd_step", params, grads, {}, {}, outs, rule);
    }
    const SgdMomentum<T> rule{T(s.lr), T(s.weight_decay), T(s.momentum), T(1.0 - s.dampening),
                              s.nesterov};
    step_all<T>("sgd_step", params, grads, velocities, {}, outs, rule);
  });
}

void adam_step(Views params, Views grads, Views firsts, Views seconds, Views outs,
               const AdamParams& settings) {
  if (params.empty()) return;
  with_float(params[0].dtype, [&]<class T>(Tag<T>) {
    step_all<T>("adam_step", params, grads, firsts, seconds, outs, AdamMoments<T>(settings));
  });
}

}  // namespace needle::cuda
