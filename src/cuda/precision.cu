#include "precision.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "core/check.h"
#include "device.h"

namespace needle::cuda {
namespace {

std::atomic<Precision> asked{Precision::kFloat32};

}  // namespace

void set_precision(const std::string& name) {
  const auto* const found = std::find(std::begin(kPrecisionNames), std::end(kPrecisionNames), name);
  if (found == std::end(kPrecisionNames)) {
    raise_error("set_matmul_precision: '" + name + "' is none; use float32, tf32, bf16 or fp16");
  }
  asked.store(static_cast<Precision>(found - kPrecisionNames), std::memory_order_relaxed);
}

bool has_tensor_cores([[maybe_unused]] int device) {
#ifdef NEEDLE_ONLY_SM75  // the compiled kernels use none
  return false;
#else
  return capability(device) >= 8;
#endif
}

Precision precision_of(int device) {
  const Precision precision = asked.load(std::memory_order_relaxed);
  return precision == Precision::kFloat32 || has_tensor_cores(device) ? precision
                                                                      : Precision::kFloat32;
}

}  // namespace needle::cuda
