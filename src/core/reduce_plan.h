// The loop plans of a reduction: one of the kept dimensions, one of the reduced dimensions. Each
// element of `kept` starts a row that runs through `reduced` and is folded.
#pragma once

#include "loop.h"

namespace needle {

struct ReducePlan {
  LoopPlan kept;     // operand 0: a, operand 1: out
  LoopPlan reduced;  // operand 0: a
};

// `out` has a's shape, with 1 where a dimension is folded. Both plans begin at a's first element.
ReducePlan make_reduce_plan(const View& a, const View& out);

}  // namespace needle
