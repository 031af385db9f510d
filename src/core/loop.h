// Trail 11 of 30: LoopPlan: axes are ordered and merged, so that a kernel sees long runs.
// Next: src/cpu/elementwise.cc

// A loop plan puts the dimensions of several views of one shape in order of their strides, merges
// dimensions that form one run, and is walked in fixed chunks by the thread pool. Every elementwise
// kernel uses one, so its loops see one-dimensional runs only.
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

// Operand 0 is the output. The sizes of its strides decide the order; a dimension in which its
// stride is negative is flipped for all operands. All views must have the same shape.
LoopPlan make_plan(const View* const* views, int operands);
template <class... Views>
static inline LoopPlan make_plan(const View& out, const Views&... others) {
  const View* views[] = {&out, &others...};
  return make_plan(views, 1 + sizeof...(others));
}

// The position of element `index` of the plan, in row-major order: coordinates and addresses.
struct Position {
  std::int64_t at[kMaxDims];
  char* data[kMaxOperands];
};
Position locate(const LoopPlan& plan, std::int64_t index);
// Moves the position to the first element of the next innermost run.
void next_run(const LoopPlan& plan, Position& position);
// Returns the dimension along which operand 1 is contiguous (elements of `bytes` bytes) if that is
// not the innermost one of operand 0, or -1 if copying by tiles would not help.
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

// Does the same for all elements, on the thread pool. f must not depend on where a run is cut.
template <class F>
static inline void parallel_runs(const LoopPlan& plan, std::int64_t grain, F&& f) {
  parallel_for(plan.size, grain,
               [&](std::int64_t begin, std::int64_t end) { for_each_run(plan, begin, end, f); });
}

}  // namespace needle
