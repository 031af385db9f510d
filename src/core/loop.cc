#include "loop.h"

#include <cassert>
#include <cstdlib>
#include <utility>

namespace needle {
namespace {

void swap_dims(LoopPlan& plan, int i, int j) {
  std::swap(plan.shape[i], plan.shape[j]);
  for (int k = 0; k < plan.operands; ++k) std::swap(plan.strides[k][i], plan.strides[k][j]);
}

// Drops dimensions of size 1 and reverses those along which the output runs backwards.
void add_dims(LoopPlan& plan, const View* const* views) {
  for (int i = 0; i < views[0]->ndim; ++i) {
    const std::int64_t n = views[0]->shape[i];
    if (n == 1) continue;
    const bool flip = views[0]->strides[i] < 0 && n > 0;
    for (int k = 0; k < plan.operands; ++k) {
      std::int64_t stride = views[k]->strides[i] * std::int64_t(size_of(views[k]->dtype));
      if (flip) {
        plan.data[k] += stride * (n - 1);
        stride = -stride;
      }
      plan.strides[k][plan.ndim] = stride;
    }
    plan.shape[plan.ndim++] = n;
  }
}

// Returns true if dimension i belongs outside dimension j; the first operand whose strides differ
// decides.
bool outside(const LoopPlan& plan, int i, int j) {
  for (int k = 0; k < plan.operands; ++k) {
    const std::int64_t a = std::llabs(plan.strides[k][i]), b = std::llabs(plan.strides[k][j]);
    if (a != b) return a > b;
  }
  return false;
}

void sort_dims(LoopPlan& plan) {  // insertion sort: few dimensions, mostly in order already
  for (int i = 1; i < plan.ndim; ++i) {
    for (int j = i; j > 0 && outside(plan, j, j - 1); --j) swap_dims(plan, j, j - 1);
  }
}

bool mergeable(const LoopPlan& plan, int outer, int inner) {
  for (int k = 0; k < plan.operands; ++k) {
    if (plan.strides[k][outer] != plan.strides[k][inner] * plan.shape[inner]) return false;
  }
  return true;
}

void merge_dims(LoopPlan& plan) {
  int last = 0;
  for (int i = 1; i < plan.ndim; ++i) {
    if (mergeable(plan, last, i)) {
      plan.shape[last] *= plan.shape[i];
    } else {
      plan.shape[++last] = plan.shape[i];
    }
    for (int k = 0; k < plan.operands; ++k) plan.strides[k][last] = plan.strides[k][i];
  }
  plan.ndim = last + 1;
}

}  // namespace

LoopPlan make_plan(const View* const* views, int operands) {
  LoopPlan plan;
  plan.operands = operands;
  plan.size = size_of(*views[0]);
  for (int k = 0; k < operands; ++k) {
    assert(views[k]->ndim == views[0]->ndim);
    plan.data[k] = static_cast<char*>(views[k]->data);
  }
  if (plan.size > 0) add_dims(plan, views);
  if (plan.ndim == 0) {  // a single element, or none: one run
    plan.ndim = 1;
    plan.shape[0] = plan.size;
    return plan;
  }
  sort_dims(plan);
  merge_dims(plan);
  return plan;
}

Position locate(const LoopPlan& plan, std::int64_t index) {
  Position position = {};
  for (int k = 0; k < plan.operands; ++k) position.data[k] = plan.data[k];
  for (int i = plan.ndim - 1; i >= 0 && index > 0; --i) {
    position.at[i] = index % plan.shape[i];
    index /= plan.shape[i];
    for (int k = 0; k < plan.operands; ++k) {
      position.data[k] += position.at[i] * plan.strides[k][i];
    }
  }
  return position;
}

void next_run(const LoopPlan& plan, Position& position) {
  const int last = plan.ndim - 1;
  for (int k = 0; k < plan.operands; ++k) {
    position.data[k] -= position.at[last] * plan.strides[k][last];
  }
  position.at[last] = 0;
  for (int i = last - 1; i >= 0; --i) {
    const bool carry = ++position.at[i] == plan.shape[i];
    const std::int64_t steps = carry ? 1 - plan.shape[i] : 1;
    for (int k = 0; k < plan.operands; ++k) position.data[k] += steps * plan.strides[k][i];
    if (!carry) return;
    position.at[i] = 0;
  }
}

int transposed_dim(const LoopPlan& plan, std::int64_t bytes) {
  const int last = plan.ndim - 1;
  if (plan.strides[1][last] != bytes && plan.strides[0][last] == bytes) {
    for (int i = 0; i < last; ++i) {
      if (plan.strides[1][i] == bytes && plan.shape[i] >= 4) return i;
    }
  }
  return -1;
}

}  // namespace needle
