// What batch_norm's epilogue does to each result, for the CPU and CUDA.
#pragma once

#include <type_traits>

namespace needle {

enum class Then { kNothing, kRelu, kAddRelu };

// Calls f with the epilogue as a compile-time constant. Static, because objects compiled for
// different instruction sets must share no code.
template <class F>
static inline void with_then(bool adds, bool relu, F&& f) {
  if (adds) return f(std::integral_constant<Then, Then::kAddRelu>{});
  if (relu) return f(std::integral_constant<Then, Then::kRelu>{});
  f(std::integral_constant<Then, Then::kNothing>{});
}

}  // namespace needle
