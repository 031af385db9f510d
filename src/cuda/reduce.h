// A reduction by an associative rule; reduce and logsumexp supply the rules. If rows are long, each
// output has a warp, whose loads coalesce and whose lanes are combined by shuffles. If the reduced
// axis is not contiguous, or rows are short, each output has a thread, so a warp still reads whole
// cache lines. If there are few outputs, the reduced axis is split into segments, whose partial
// results a second kernel combines. The split depends on the shape alone, so results are the same
// on every GPU. The warps of a block process consecutive segments of one output, so that all have
// work if outputs are few.
#pragma once

#include <algorithm>

#include "allocator.h"
#include "core/reduce_plan.h"
#include "kernels.h"
#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kThreads = 256, kRowsOfBlock = kThreads / kWarp;
constexpr std::int64_t kFewElements = 16;
constexpr std::int64_t kManyWarps = 8192, kManyThreads = 1 << 17;  // enough to occupy every GPU
constexpr std::int64_t kRowSegment = 1024, kColumnSegment = 64;    // minimum length of a segment
constexpr std::int64_t kMostSegments = 32768;

// A Rule has a type Lane of elements, a type Wide of partial results and the neutral element
// identity(). step(x, y) combines two elements, and combine(x, y) two partial results, to which
// elements convert. result(x) converts a partial result to an element of the output.
template <class Rule>
using Result = decltype(Rule::result(Rule::identity()));

struct Reduction {
  Walk kept;                    // operand 0: a, operand 1: out
  Divisor outputs;              // of `kept`
  std::uint32_t segments;       // of each output, of this launch
  Walk reduced;                 // operand 0: a
  std::int64_t shift;           // bytes from a's first element to that of `reduced`
  std::uint32_t length;         // elements of a segment
  std::uint32_t first_segment;  // number of the first one in `partial`
};

template <class Rule>
__device__ typename Rule::Wide fold(const char* a, const Walk& walk, std::uint32_t i,
                                    std::uint32_t end, std::uint32_t stride) {
  using T = typename Rule::Lane;
  using V = Computed<T>;
  const auto load = [&](std::uint32_t index) {
    return V(*reinterpret_cast<const T*>(a + locate<1>(walk, index).bytes[0]));
  };
  auto total = Rule::identity();
  for (; i + 3 * stride < end; i += 4 * stride) {  // four loads in flight
    const V x = load(i), y = load(i + stride), z = load(i + 2 * stride), w = load(i + 3 * stride);
    total = Rule::combine(total, Rule::step(Rule::step(x, y), Rule::step(z, w)));
  }
  for (; i < end; i += stride) total = Rule::combine(total, load(i));
  return total;
}

template <class V>
__device__ V from_lane_below(V value, int by) {
  if constexpr (std::is_arithmetic_v<V>) {
    return __shfl_down_sync(kAllLanes, value, by);
  } else {
    return value.from_lane_below(by);
  }
}

template <class Rule>
__device__ typename Rule::Wide fold_warp(typename Rule::Wide total) {
  for (int by = kWarp / 2; by > 0; by /= 2) {
    total = Rule::combine(total, from_lane_below(total, by));
  }
  return total;
}

// One warp, or one thread, computes one segment of one output. If `partial` is null, the result
// goes to out.
template <class Rule, bool kWarpEach>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(const __grid_constant__ Reduction r, typename Rule::Wide* partial) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint32_t number = kWarpEach ? blockIdx.x * kRowsOfBlock + threadIdx.x / kWarp
                                         : blockIdx.x * kThreads + threadIdx.x;
  const std::uint32_t segment = r.outputs.quotient(number);
  const std::uint32_t output = number - segment * r.outputs.divisor;
  if (segment >= r.segments) return;  // never part of a cooperating warp
  const auto offsets = locate<2>(r.kept, output);
  const char* a = r.kept.data[0] + offsets.bytes[0] + r.shift;
  const std::uint32_t begin = segment * r.length;
  const std::uint32_t end = std::min(begin + r.length, r.reduced.size);
  auto total = kWarpEach ? fold<Rule>(a, r.reduced, begin + lane, end, kWarp)
                         : fold<Rule>(a, r.reduced, begin, end, 1);
  if constexpr (kWarpEach) {
    total = fold_warp<Rule>(total);
    if (lane != 0) return;
  }
  if (partial != nullptr) {
    partial[std::size_t(r.first_segment + segment) * r.kept.size + output] = total;
  } else {
    *reinterpret_cast<Result<Rule>*>(r.kept.data[1] + offsets.bytes[1]) = Rule::result(total);
  }
}

// One warp combines the segments of one output.
template <class Rule>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const __grid_constant__ Walk kept, const typename Rule::Wide* partial,
                   const std::uint32_t segments) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint32_t output = blockIdx.x * kRowsOfBlock + threadIdx.x / kWarp;
  if (output >= kept.size) return;
  auto total = Rule::identity();
  for (std::uint32_t s = lane; s < segments; s += kWarp) {
    total = Rule::combine(total, partial[std::size_t(s) * kept.size + output]);
  }
  total = fold_warp<Rule>(total);
  if (lane != 0) return;
  *reinterpret_cast<Result<Rule>*>(kept.data[1] + locate<2>(kept, output).bytes[1]) =
      Rule::result(total);
}

// ---- launching ----

struct Plan : ReducePlan {
  const View *a, *out;
  bool columns;
  std::int64_t length;  // of a segment
};

// Launches one kernel for each part of the reduced elements; returns the number of segments.
template <class Rule>
std::uint32_t launch_segments(const Plan& plan, const LoopPlan& kept,
                              typename Rule::Wide* partial) {
  const View* kept_views[] = {plan.a, plan.out};
  const View* reduced_views[] = {plan.a};
  Reduction r{};
  r.kept = make_walk(kept, kept_views);
  r.outputs = Divisor(kept.size);
  r.length = static_cast<std::uint32_t>(plan.length);
  std::uint32_t segments = 0;
  in_parts(plan.reduced, [&](const LoopPlan& part) {
    r.reduced = make_walk(part, reduced_views);
    r.shift = part.data[0] - static_cast<char*>(plan.a->data);
    r.first_segment = segments;
    r.segments = static_cast<std::uint32_t>(ceil_div(part.size, plan.length));
    const unsigned each = plan.columns ? kThreads : kRowsOfBlock;
    const auto kernel = plan.columns ? reduce_kernel<Rule, false> : reduce_kernel<Rule, true>;
    launch("reduce", plan.a->device, {ceil_div(r.kept.size * r.segments, each)}, {kThreads}, kernel,
           r, partial);
    segments += r.segments;
  });
  return segments;
}

template <class Rule>
void reduce_typed(const Plan& plan) {
  in_parts(plan.kept, [&](const LoopPlan& kept) {
    if (plan.reduced.size <= std::min(plan.length, kPart)) {
      launch_segments<Rule>(plan, kept, nullptr);
      return;
    }
    const std::int64_t most = ceil_div(plan.reduced.size, plan.length) +
                              2 * ceil_div(plan.reduced.size, kPart);  // the last ones may be short
    using Wide = typename Rule::Wide;
    const Temporary partial(std::size_t(most * kept.size) * sizeof(Wide), plan.a->device);
    const std::uint32_t segments = launch_segments<Rule>(plan, kept, partial.as<Wide>());
    const View* views[] = {plan.a, plan.out};
    launch("reduce", plan.a->device, {ceil_div<std::uint32_t>(kept.size, kRowsOfBlock)}, {kThreads},
           combine_kernel<Rule>, make_walk(kept, views), partial.as<Wide>(), segments);
  });
}

Plan plan_of(In a, Out out) {
  Plan plan{make_reduce_plan(a, out), &a, &out, false, 0};
  const auto item = std::int64_t(size_of(a.dtype));
  const std::int64_t across = plan.kept.strides[0][plan.kept.ndim - 1];
  const std::int64_t along = plan.reduced.strides[0][plan.reduced.ndim - 1];
  const std::int64_t kept = plan.kept.size, size = plan.reduced.size;
  plan.columns = size <= kFewElements || (across == item && along != item);
  const std::int64_t least = plan.columns ? kColumnSegment : kRowSegment;
  const std::int64_t wanted = plan.columns ? kManyThreads : kManyWarps;
  plan.length = std::max({least, ceil_div(std::min(size, kPart), kMostSegments),
                          kept >= wanted ? size : ceil_div(size * kept, wanted)});
  return plan;
}

}  // namespace
}  // namespace needle::cuda
