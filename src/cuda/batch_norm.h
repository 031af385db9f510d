// The layout of the views of batch_norm and its gradient.
#pragma once

#include "channel_rows.h"

namespace needle::cuda {
namespace {

// The epilogue of the normalisation.
enum class Then { kNothing, kRelu, kAddRelu };

// The views of one pass, all of one shape (..., C).
struct Layout {
  Walk pixels;                                 // all axes but the channels
  std::int64_t channel_strides[kMaxOperands];  // in bytes

  template <class T>
  __device__ T* at(int operand, std::int64_t offset, std::uint32_t channel) const {
    return reinterpret_cast<T*>(pixels.data[operand] + offset + channel * channel_strides[operand]);
  }
};

// Plans a pass over 2 to 4 views; the first view decides the order of pixels.
inline LoopPlan plan_of_views(const View* views, int count) {
  if (count == 2) return make_plan(views[0], views[1]);
  if (count == 3) return make_plan(views[0], views[1], views[2]);
  return make_plan(views[0], views[1], views[2], views[3]);
}

struct Pass {
  Layout layout;
  ChannelTiles tiles;

  Pass(const char* op, const View* const* views, int count, bool sums) : layout{} {
    View pixels[kMaxOperands];
    const View* pointers[kMaxOperands];
    const int last = views[0]->ndim - 1;
    bool neighbours = views[0]->shape[last] > 1;
    for (int k = 0; k < count; ++k) {
      pixels[k] = *views[k];
      --pixels[k].ndim;
      pointers[k] = &pixels[k];
      layout.channel_strides[k] = views[k]->strides[last] * std::int64_t(size_of(views[k]->dtype));
      neighbours = neighbours && views[k]->strides[last] == 1;
    }
    const LoopPlan plan = plan_of_views(pixels, count);
    tiles = tiles_of(op, plan.size, views[0]->shape[last], neighbours, sums);
    layout.pixels = make_walk(plan, pointers);
  }
};

}  // namespace
}  // namespace needle::cuda
