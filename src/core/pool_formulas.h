// How pooling combines the values of a window, for single elements or vectors of them. The CPU
// loops and the GPU kernels both include this file. All of it is inlined, because objects compiled
// for different instruction sets must share no code.
#pragma once

#include <limits>

#include "scalar_math.h"  // NEEDLE_HD

namespace needle {

// fold() combines two values, kNothing is its identity, and finish() converts the folded value to
// the result. `share` is 1 / the number of elements of a window.
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
