// The one elementwise kernel, out = F(a, b, ...), is a template on the formula. If all operands are
// contiguous, each thread accesses 16 bytes at a time, so a warp's accesses coalesce to whole cache
// lines. Otherwise a thread processes single elements and computes their offsets from their
// indices. Every operand is read or written once, so memory bandwidth is the limit. There are two
// hundred instances, so the code is short: each contains the formula kPack + 1 times and the
// computation of offsets once.
#pragma once

#include <algorithm>
#include <utility>

#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kMapThreads = 256;
constexpr unsigned kBlocksPerProcessor = 16;  // beyond it, threads loop over the grid

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

// One operand: a view of memory or a scalar.
template <class T>
struct Source {
  using V = Computed<T>;
  const char* data;
  V value;
  bool constant;

  template <int kPack>
  __device__ Pack<V, kPack> pack(std::uint32_t i) const {
    Pack<V, kPack> values;
    if (constant) {
      for (int j = 0; j < kPack; ++j) values.values[j] = value;
    } else {
      const auto read = reinterpret_cast<const Pack<T, kPack>*>(data)[i];
      for (int j = 0; j < kPack; ++j) values.values[j] = read.values[j];
    }
    return values;
  }
  __device__ V at(std::int64_t offset) const {
    return constant ? value : V(*reinterpret_cast<const T*>(data + offset));
  }
};

template <class T>
__device__ Source<T> source_of(const Walk& walk, int operand) {
  Source<T> source{walk.data[operand], Computed<T>(), walk.constant[operand]};
  if (walk.is_scalar[operand]) {
    memcpy(&source.value, walk.scalars[operand], sizeof source.value);
  } else if (source.constant) {
    source.value = *reinterpret_cast<const T*>(source.data);
  }
  return source;
}

template <int kOperands>
__device__ __noinline__ Offsets<kOperands> place(const Walk& walk, std::uint32_t index) {
  return locate<kOperands>(walk, index);
}

// `runs` is true if kPack adjacent elements may be accessed as one vector.
template <int kPack, class F, class R, class... T, std::size_t... k>
__device__ void map_operands(const Walk& walk, bool runs, std::index_sequence<k...>,
                             const Source<T>&... in) {
  const std::uint32_t threads = gridDim.x * kMapThreads;
  std::uint32_t i = blockIdx.x * kMapThreads + threadIdx.x;
  if constexpr (kPack > 1) {
    if (runs) {
      for (std::uint32_t p = i; p < walk.size / kPack; p += threads) {
        Pack<R, kPack> result;
        const auto apply = [&](const Pack<Computed<T>, kPack>&... x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) result.values[j] = F::apply(x.values[j]...);
        };
        apply(in.template pack<kPack>(p)...);
        reinterpret_cast<Pack<R, kPack>*>(walk.data[0])[p] = result;
      }
      i += walk.size / kPack * kPack;  // the remainder of less than a pack
    }
  }
#pragma unroll 1
  for (; i < walk.size; i += threads) {
    const auto offsets = place<1 + sizeof...(T)>(walk, i);
    *reinterpret_cast<R*>(walk.data[0] + offsets.bytes[0]) =
        F::apply(in.at(offsets.bytes[k + 1])...);
  }
}

// The number of elements in a pack. Larger packs of short types make longer code without more
// speed. A formula that is limited by arithmetic has packs of one.
template <class F, class... T>
constexpr int kPackOf = F::kLong ? 1 : std::min(4, 16 / int(std::max({sizeof(T)...})));

template <class F, class R, class... T, std::size_t... k>
__device__ void map_sources(const Walk& walk, bool runs, std::index_sequence<k...> numbers) {
  map_operands<kPackOf<F, R, T...>, F, R, T...>(walk, runs, numbers, source_of<T>(walk, k + 1)...);
}

template <class F, class R, class... T>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(const __grid_constant__ Walk walk, const bool runs) {
  map_sources<F, R, T...>(walk, runs, std::index_sequence_for<T...>());
}

// Returns true if vectors of `count` elements are aligned in every operand.
inline bool packs_fit(const Walk& walk, const View* const* views, int operands, int count) {
  for (int k = 0; k < operands; ++k) {
    const auto address = reinterpret_cast<std::uintptr_t>(walk.data[k]);
    if (!walk.constant[k] && address % (count * size_of(views[k]->dtype)) != 0) return false;
  }
  return true;
}

// Computes out = F::apply(operands...) with operands of types T...; `views` is out, followed by the
// operands.
template <class F, class R, class... T>
void map(const char* op, const LoopPlan& plan, const View* const* views) {
  const int device = views[0]->device;
  in_parts(plan, [&](const LoopPlan& part) {
    if (part.size == 0) return;
    const Walk walk = make_walk(part, views);
    constexpr int kPack = kPackOf<F, R, T...>;
    const bool runs = walk.dense && packs_fit(walk, views, part.operands, kPack);
    const unsigned blocks = std::min(ceil_div<unsigned>(walk.size, kMapThreads * kPack),
                                     kBlocksPerProcessor * unsigned(processors(device)));
    launch(op, device, {blocks}, {kMapThreads}, map_kernel<F, R, T...>, walk, runs);
  });
}

}  // namespace
}  // namespace needle::cuda
