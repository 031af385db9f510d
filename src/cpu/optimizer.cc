// One pass of SGD or Adam over many parameters. Together they are cut into tasks of a fixed number
// of elements, so many small parameters cost one call. Each element is read and written once. Views
// are contiguous.
#include "core/adam.h"
#include "core/not_implemented.h"
#include "core/scratch.h"
#include "core/simd.h"
#include "core/thread_pool.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

using Index = std::int64_t;
constexpr Index kTaskElements = 1 << 14;

Index tasks_of(const View& v) { return (size_of(v) + kTaskElements - 1) / kTaskElements; }

// Calls f(parameter, first element, count) over all elements of all parameters.
template <class F>
void each_part(Views params, F&& f) {
  const Index count = static_cast<Index>(params.size());
  const Scratch scratch(static_cast<std::size_t>(count + 1) * sizeof(Index));
  Index* first_task = scratch.as<Index>();
  first_task[0] = 0;
  for (Index p = 0; p < count; ++p) first_task[p + 1] = first_task[p] + tasks_of(params[p]);
  parallel_for(first_task[count], 1, [&](Index begin, Index end) {
    Index low = 0, high = count;  // the parameter that task `begin` starts in
    while (high - low > 1) {
      const Index middle = (low + high) / 2;
      (first_task[middle] <= begin ? low : high) = middle;
    }
    for (Index task = begin; task < end; ++task) {
      while (task >= first_task[low + 1]) ++low;
      const Index first = (task - first_task[low]) * kTaskElements,
                  rest = size_of(params[low]) - first;
      f(low, first, rest < kTaskElements ? rest : kTaskElements);
    }
  });
}

template <class T>
void sgd_plain(const T* param, const T* grad, T* out, Index n, const SgdParams& s) {
  const T lr = T(s.lr), decay = T(s.weight_decay);
  NEEDLE_INDEPENDENT
  for (Index i = 0; i < n; ++i) out[i] = param[i] - lr * (grad[i] + decay * param[i]);
}

template <class T, bool kNesterov>
void sgd_momentum(const T* param, const T* grad, T* velocity, T* out, Index n, const SgdParams& s) {
  /// BEGIN SOLUTION [kernel-sgd]
  const T lr = T(s.lr), decay = T(s.weight_decay), momentum = T(s.momentum);
  const T fresh = T(1.0 - s.dampening);
  NEEDLE_INDEPENDENT
  for (Index i = 0; i < n; ++i) {
    const T p = param[i], g = grad[i] + decay * p, v = momentum * velocity[i] + fresh * g;
    velocity[i] = v;
    out[i] = p - lr * (kNesterov ? g + momentum * v : v);
  }
  /// END SOLUTION
}

template <class T>
void sgd_typed(Views params, Views grads, Views velocities, Views outs, const SgdParams& s) {
  each_part(params, [&](Index p, Index first, Index n) {
    const T *param = data_of<const T>(params[p]) + first,
            *grad = data_of<const T>(grads[p]) + first;
    T* out = data_of<T>(outs[p]) + first;
    if (velocities.empty()) return sgd_plain(param, grad, out, n, s);
    T* velocity = data_of<T>(velocities[p]) + first;
    s.nesterov ? sgd_momentum<T, true>(param, grad, velocity, out, n, s)
               : sgd_momentum<T, false>(param, grad, velocity, out, n, s);
  });
}

template <class T>
void adam_part(const T* param, const T* grad, T* first, T* second, T* out, Index n,
               const Adam<T>& rule) {
  NEEDLE_INDEPENDENT
  for (Index i = 0; i < n; ++i) {
    T m = first[i], v = second[i];
    out[i] = rule.step(param[i], grad[i], m, v);
    first[i] = m;
    second[i] = v;
  }
}

template <class T>
void adam_typed(Views params, Views grads, Views firsts, Views seconds, Views outs,
                const AdamParams& s) {
  const Adam<T> rule(s);
  each_part(params, [&](Index p, Index first, Index n) {
    adam_part(data_of<const T>(params[p]) + first, data_of<const T>(grads[p]) + first,
              data_of<T>(firsts[p]) + first, data_of<T>(seconds[p]) + first,
              data_of<T>(outs[p]) + first, n, rule);
  });
}

}  // namespace

void sgd_step(Views params, Views grads, Views velocities, Views outs, const SgdParams& settings) {
  if (params.empty()) return;
  with_float(params[0].dtype,
             [&]<class T>(Tag<T>) { sgd_typed<T>(params, grads, velocities, outs, settings); });
}

void adam_step(Views params, Views grads, Views firsts, Views seconds, Views outs,
               const AdamParams& settings) {
  if (params.empty()) return;
  with_float(params[0].dtype, [&]<class T>(Tag<T>) {
    adam_typed<T>(params, grads, firsts, seconds, outs, settings);
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
