// The kernel row random. An element is a function of the seed, the draw and its index alone
// (core/random_formulas.h), so results equal the CPU's bit for bit. This file is compiled without
// contraction to fused multiply-add. A thread computes one Philox block of four elements and stores
// them as one vector if they are aligned. Memory bandwidth limits uniform numbers, float64
// arithmetic limits normal ones.
#include <algorithm>

#include "allocator.h"
#include "core/random_formulas.h"
#include "core/view_rules.h"
#include "kernels.h"
#include "walk.h"

namespace needle::cuda {
namespace {

using random_numbers::kWords;
constexpr unsigned kThreads = 256;

template <class T>
struct alignas(kWords * sizeof(T)) Quad {
  T data[kWords];
};

// Computes `size` elements of draw number `number`, beginning with block `first`. `whole` is true
// if out is aligned, so that a block can be stored as a vector.
template <RandomOp op, class T>
__global__ void __launch_bounds__(kThreads)
    random_kernel(T* out, const std::uint32_t size, const std::uint64_t first, const PhiloxKey key,
                  const std::uint32_t number, const random_numbers::Draw<op, T> draw,
                  const bool whole) {
  const std::uint32_t block = blockIdx.x * kThreads + threadIdx.x;
  const std::uint32_t begin = block * kWords;
  if (begin >= size) return;
  const PhiloxBlock words = random_numbers::words_of(key, number, first + block);
  Quad<T> values;
#pragma unroll
  for (int i = 0; i < kWords; ++i) values.data[i] = draw.of(words.word[i]);
  if (whole && begin + kWords <= size) {
    reinterpret_cast<Quad<T>*>(out)[block] = values;
    return;
  }
  const std::uint32_t end = std::min<std::uint32_t>(begin + kWords, size);
  for (std::uint32_t i = begin; i < end; ++i) out[i] = values.data[i - begin];
}

template <RandomOp op, class T>
void fill_compact(T* out, std::int64_t size, int device, const RandomParams& params) {
  const random_numbers::Draw<op, T> draw(params.a, params.b);
  const bool whole = reinterpret_cast<std::uintptr_t>(out) % sizeof(Quad<T>) == 0;
  static_assert(kPart % kWords == 0);
  for (std::int64_t first = 0; first < size; first += kPart) {
    const auto count = static_cast<std::uint32_t>(std::min(kPart, size - first));
    launch("random", device, {ceil_div(count, kThreads * kWords)}, {kThreads}, random_kernel<op, T>,
           out + first, count, static_cast<std::uint64_t>(first / kWords), philox_key(params.seed),
           static_cast<std::uint32_t>(params.draw), draw, whole);
  }
}

template <class T>
void fill_of(RandomOp op, T* out, Out like, const RandomParams& params) {
  switch (op) {
#define NEEDLE_ROW(name) \
  case RandomOp::name: return fill_compact<RandomOp::name>(out, size_of(like), like.device, params);
    NEEDLE_RANDOM_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
}

template <class T>
void draw_all(RandomOp op, Out out, const RandomParams& params) {
  if (is_compact(out)) return fill_of(op, data_of<T>(out), out, params);
  const Temporary straight(static_cast<std::size_t>(size_of(out)) * sizeof(T), out.device);
  fill_of(op, straight.as<T>(), out, params);
  copy(row_major(out, straight.as<void>()), out);
}

}  // namespace

void random(RandomOp op, Out out, const RandomParams& params) {
  with_float(out.dtype, [&]<class T>(Tag<T>) { draw_all<T>(op, out, params); });
}

}  // namespace needle::cuda
