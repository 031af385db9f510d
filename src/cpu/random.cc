// The kernel row random. An element depends only on the seed, the draw and its position
// (core/random_formulas.h), so any thread may compute it. Philox produces four words at a time.
#include "core/random_formulas.h"
#include "core/thread_pool.h"
#include "row_major.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

using Index = std::int64_t;
using random_numbers::kWords;
constexpr Index kTaskBlocks = 2048;

template <RandomOp op, class T>
void fill_compact(T* out, Index size, const RandomParams& params) {
  const random_numbers::Draw<op, T> draw(params.a, params.b);
  const PhiloxKey key = philox_key(params.seed);
  const auto number = static_cast<std::uint32_t>(params.draw);
  parallel_for((size + kWords - 1) / kWords, kTaskBlocks, [&](Index begin, Index end) {
    for (Index block = begin; block < end; ++block) {
      const PhiloxBlock words =
          random_numbers::words_of(key, number, static_cast<std::uint64_t>(block));
      const Index first = block * kWords, last = first + kWords < size ? first + kWords : size;
      for (Index i = first; i < last; ++i) out[i] = draw.of(words.word[i - first]);
    }
  });
}

template <class T>
void fill_of(RandomOp op, T* out, Index size, const RandomParams& params) {
  switch (op) {
#define NEEDLE_ROW(name) \
  case RandomOp::name: return fill_compact<RandomOp::name>(out, size, params);
    NEEDLE_RANDOM_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
}

template <class T>
void draw_all(RandomOp op, Out out, const RandomParams& params) {
  const RowMajor written(out, is_compact(out));
  fill_of(op, data_of<T>(written.view), size_of(out), params);
  written.store();
}

}  // namespace

void random(RandomOp op, Out out, const RandomParams& params) {
  with_float(out.dtype, [&]<class T>(Tag<T>) { draw_all<T>(op, out, params); });
}

}  // namespace needle::cpu::NEEDLE_ISA
