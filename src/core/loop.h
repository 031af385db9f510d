// Trail 11 of 30: LoopPlan: axes are ordered and merged, so that a kernel sees long runs.
// Next: src/cpu/elementwise.cc

// A loop plan describes a loop over several views of one shape. It sorts the dimensions by stride
// and merges those that form one run. The thread pool walks it in chunks of fixed size. Every
// elementwise kernel uses one, so its inner loops see one-dimensional runs only.
#pragma once

#include <cstdint>

#include "thread_pool.h"
#include "view.h"

namespace needle {

inline constexpr int kMaxOperands = 4;
inline constexpr std::int64_t kGrain = 32768;  // elements a thread takes at a time

struct LoopPlan {
  int operands = 0;
  int ndim = 0;  // >= 1; the last dimension is the innermost
  std::int64_t size = 0;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t strides[kMaxOperands][kMaxDims] = {};  // in bytes
  char* data[kMaxOperands] = {};
};

// Makes the plan of views of one shape; operand 0 is the output. Dimensions are sorted by the size
// of its strides. If one of its strides is negative, that dimension is reversed in all operands.
LoopPlan make_plan(const View* const* views, int operands);
template <class... Views>
static inline LoopPlan make_plan(const View& out, const Views&... others) {
  const View* views[] = {&out, &others...};
  return make_plan(views, 1 + sizeof...(others));
}

// The position of one element of the plan: its coordinates, and its address in each operand.
struct Position {
  std::int64_t at[kMaxDims];
  char* data[kMaxOperands];
};
Position locate(const LoopPlan& plan, std::int64_t index);
// Moves the position to the first element of the next innermost run.
void next_run(const LoopPlan& plan, Position& position);
// Finds transposed layouts. Returns the dimension along which operand 1 is contiguous (its elements
// have `bytes` bytes), or -1 if that is also operand 0's innermost one or tiles would not help.
int transposed_dim(const LoopPlan& plan, std::int64_t bytes);

// Calls f(n, char* const data[]) for each innermost run in elements [begin, end) of the plan.
template <class F>
static inline void for_each_run(const LoopPlan& plan, std::int64_t begin, std::int64_t end, F&& f) {
  if (begin >= end) return;
  const int last = plan.ndim - 1;
  Position position = locate(plan, begin);
  std::int64_t n = plan.shape[last] - position.at[last];
  for (;;) {
    if (n > end - begin) n = end - begin;
    f(n, static_cast<char* const*>(position.data));
    begin += n;
    if (begin >= end) return;
    next_run(plan, position);
    n = plan.shape[last];
  }
}

// Like for_each_run, but for all elements, on the thread pool. f must not depend on where runs are
// cut.
template <class F>
static inline void parallel_runs(const LoopPlan& plan, std::int64_t grain, F&& f) {
  parallel_for(plan.size, grain,
               [&](std::int64_t begin, std::int64_t end) { for_each_run(plan, begin, end, f); });
}

}  // namespace needle
