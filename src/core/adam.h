// Adam's update of one element (Kingma & Ba 2015, algorithm 1). The constants are computed once per
// step. The CPU loop and the GPU kernel both include this file. Its functions are always inlined,
// because objects compiled for different instruction sets must share no code.
#pragma once

#include <cmath>

#include "kernel_table.h"
#include "scalar_math.h"  // NEEDLE_HD

namespace needle {

template <class T>
struct Adam {
  T beta1, fresh1, beta2, fresh2, rate, spread, eps, kept, coupled_decay;

  [[gnu::always_inline]] explicit Adam(const AdamParams& s)
      : beta1(T(s.beta1)),
        fresh1(T(1.0 - s.beta1)),
        beta2(T(s.beta2)),
        fresh2(T(1.0 - s.beta2)),
        rate(T(s.lr / (1.0 - std::pow(s.beta1, double(s.step))))),
        spread(T(1.0 / std::sqrt(1.0 - std::pow(s.beta2, double(s.step))))),
        eps(T(s.eps)),
        kept(T(s.decoupled ? 1.0 - s.lr * s.weight_decay : 1.0)),
        coupled_decay(T(s.decoupled ? 0.0 : s.weight_decay)) {}

  // Returns the new parameter and updates the moments.
  [[gnu::always_inline]] NEEDLE_HD T step(T param, T grad, T& first, T& second) const {
    const T g = grad + coupled_decay * param;
    first = beta1 * first + fresh1 * g;
    second = beta2 * second + fresh2 * g * g;
    return kept * param - rate * first / (std::sqrt(second) * spread + eps);
  }
};

}  // namespace needle
