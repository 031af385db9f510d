// The precision of float32 products (NEEDLE_MATMUL_PRECISION, python/needle/config.py): full, or
// that of tensor cores, which round operands to TF32, bf16 or fp16 and accumulate in float32.
// matmul and the convolutions use it.
#pragma once

#include <string>
#include <type_traits>

#include "core/bfloat16.h"

namespace needle::cuda {

enum class Precision { kFloat32, kTf32, kBf16, kFp16 };
inline constexpr const char* kPrecisionNames[] = {"float32", "tf32", "bf16", "fp16"};

void set_precision(const std::string& name);  // Error if the name is unknown
bool has_tensor_cores(int device);            // with all precisions: from sm_80 on
Precision precision_of(int device);           // full without tensor cores

// Calls f with the precision for products of T, as an integral_constant. For bfloat16 it is always
// kBf16, on tensor cores.
template <class T, class F>
void with_precision(int device, F&& f) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return f(std::integral_constant<Precision, Precision::kBf16>{});
  } else if constexpr (std::is_same_v<T, float>) {
    switch (precision_of(device)) {
      case Precision::kTf32: return f(std::integral_constant<Precision, Precision::kTf32>{});
      case Precision::kBf16: return f(std::integral_constant<Precision, Precision::kBf16>{});
      case Precision::kFp16: return f(std::integral_constant<Precision, Precision::kFp16>{});
      default: break;
    }
  }
  if constexpr (!std::is_same_v<T, BFloat16>) {
    f(std::integral_constant<Precision, Precision::kFloat32>{});
  }
}

}  // namespace needle::cuda
