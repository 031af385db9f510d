// The layout of the views of batch_norm and its gradient.
#pragma once

#include "channel_rows.h"
#include "core/normalization.h"

namespace needle::cuda {
namespace {

// The views of one pass, all of one shape (..., C).
struct Layout {
  Walk pixels;                                 // all axes but the channels
  std::int64_t channel_strides[kMaxOperands];  // in bytes

  template <class T>
  __device__ T* at(int operand, std::int64_t offset, std::uint32_t channel) const {
    return reinterpret_cast<T*>(pixels.data[operand] + offset + channel * channel_strides[operand]);
  }
};

// The first view decides the order of pixels.
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
    const LoopPlan plan = make_plan(pointers, count);
    tiles = tiles_of(op, plan.size, views[0]->shape[last], neighbours, sums);
    layout.pixels = make_walk(plan, pointers);
  }
};

// Calls use(address of operand 0, values of the other kInputs operands) for each of the thread's
// pixels.
template <class T, int kInputs, class Use>
__device__ void each_pixel(const Layout& layout, const ChannelThread& my, Use&& use) {
  struct Loaded {
    T* out;
    Computed<T> in[kInputs];
  };
  const auto load = [&](std::uint32_t i) {
    const auto offsets = locate<1 + kInputs>(layout.pixels, i);
    Loaded loaded{layout.at<T>(0, offsets.bytes[0], my.channel), {}};
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      loaded.in[k] = *layout.at<const T>(k + 1, offsets.bytes[k + 1], my.channel);
    }
    return loaded;
  };
  stream<T>(my.first, my.end, my.step, load,
            [&](std::uint32_t, const Loaded& loaded) { use(loaded.out, loaded.in); });
}

}  // namespace
}  // namespace needle::cuda
