// The folds of pooling, for an element or a vector of them. The CPU's loops and the GPU's kernels
// compile this text. All of it is inlined, because objects compiled for different instruction sets
// must share no code.
#pragma once

#include <limits>

#include "scalar_math.h"  // NEEDLE_HD

namespace needle {

// A fold of two values, where kNothing is the fold of none, and a function of the result. `share`
// is 1 / elements of a window.
template <class T>
struct Maximum {
  T share;
  static constexpr T kNothing = -std::numeric_limits<T>::infinity();
  template <class V>
  [[gnu::always_inline]] static NEEDLE_HD V fold(V old, V value) {
    return ((value > old) | (value != value)) ? value : old;
  }
  template <class V>
  [[gnu::always_inline]] NEEDLE_HD V finish(V folded) const {
    return folded;
  }
};

template <class T>
struct Average {
  T share;
  static constexpr T kNothing = T(0);
  template <class V>
  [[gnu::always_inline]] static NEEDLE_HD V fold(V old, V value) {
    return old + value;
  }
  template <class V>
  [[gnu::always_inline]] NEEDLE_HD V finish(V folded) const {
    return folded * share;
  }
};

}  // namespace needle
