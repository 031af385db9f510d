#include "reduce_plan.h"

namespace needle {

ReducePlan make_reduce_plan(const View& a, const View& out) {
  View kept_a{a.data, a.dtype}, kept_out{out.data, out.dtype}, reduced{a.data, a.dtype};
  for (int i = 0; i < a.ndim; ++i) {
    if (out.shape[i] == 1 && a.shape[i] != 1) {
      reduced.shape[reduced.ndim] = a.shape[i];
      reduced.strides[reduced.ndim++] = a.strides[i];
    } else {
      kept_a.shape[kept_a.ndim] = kept_out.shape[kept_a.ndim] = a.shape[i];
      kept_a.strides[kept_a.ndim++] = a.strides[i];
      kept_out.strides[kept_out.ndim++] = out.strides[i];
    }
  }
  return {make_plan(kept_a, kept_out), make_plan(reduced)};
}

}  // namespace needle
