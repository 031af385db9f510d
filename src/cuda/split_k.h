// The partial results of a product or sum that is split along K, and the reduction that adds them.
// matmul and the weight gradients use them.
#pragma once

#include "kernels.h"

namespace needle::cuda {
namespace {

// Returns a view of `slices` compact arrays of out's shape at `memory`, along a new leading axis.
inline View slices_like(Out out, std::int64_t slices, void* memory) {
  View all = out;
  all.data = memory;
  all.dtype = computed(out.dtype);
  all.ndim = out.ndim + 1;
  all.shape[0] = slices;
  for (int i = 0; i < out.ndim; ++i) all.shape[i + 1] = out.shape[i];
  std::int64_t stride = 1;
  for (int i = out.ndim; i >= 0; stride *= all.shape[i--]) all.strides[i] = stride;
  return all;
}

// Writes the sum over the leading axis to `out`.
inline void sum_slices(const View& slices, Out out) {
  View sum = out;
  sum.ndim = slices.ndim;
  sum.shape[0] = 1, sum.strides[0] = 0;
  for (int i = 0; i < out.ndim; ++i) {
    sum.shape[i + 1] = out.shape[i];
    sum.strides[i + 1] = out.strides[i];
  }
  reduce(ReduceOp::sum, slices, sum);
}

}  // namespace
}  // namespace needle::cuda
