// The two loop plans of a reduction: `kept` has the kept dimensions, `reduced` the reduced ones.
// For each element of `kept`, the row of `reduced` that starts there is folded to one result.
#pragma once

#include "loop.h"

namespace needle {

struct ReducePlan {
  LoopPlan kept;     // operand 0: a, operand 1: out
  LoopPlan reduced;  // operand 0: a
};

// `out` has a's shape, except that reduced dimensions have size 1. Both plans begin at a's first
// element.
ReducePlan make_reduce_plan(const View& a, const View& out);

}  // namespace needle
