// The kernel rows fill and copy. A copy between strided views serves compact, setitem, pad,
// concatenate, flip and cast. Equal dtypes are copied as words, transposed layouts by tiles.
#include <algorithm>
#include <cstring>

#include "core/loop.h"
#include "core/scalar_math.h"
#include "core/view_rules.h"
#include "kernels.h"
#include "map_runs.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr std::int64_t kTile = 32;  // a tile of 8-byte words and its transpose fit in L1

// Copies a transposed matrix tile by tile: element j of row i of `out` is element i of row j of
// `a`. Rows of `out` are `so` bytes apart, those of `a` `sa` bytes.
template <class Word>
void copy_tiles(char* out, const char* a, std::int64_t rows, std::int64_t columns, std::int64_t so,
                std::int64_t sa) {
  for (std::int64_t column = 0; column < columns; column += kTile) {
    const std::int64_t end = std::min(columns, column + kTile);
    for (std::int64_t i = 0; i < rows; ++i) {
      Word* to = reinterpret_cast<Word*>(out + i * so);
      const char* from = a + i * std::int64_t(sizeof(Word));
      for (std::int64_t j = column; j < end; ++j) {
        to[j] = *reinterpret_cast<const Word*>(from + j * sa);
      }
    }
  }
}

// Copies transposed layouts by tiles. Dimension `dim`, along which operand 1 is contiguous, is cut
// into bands of kTile rows.
template <class Word>
void copy_transposed(const LoopPlan& plan, int dim) {
  const int last = plan.ndim - 1;
  const std::int64_t rows = plan.shape[dim], columns = plan.shape[last];
  const std::int64_t so = plan.strides[0][dim], sa = plan.strides[1][last];
  LoopPlan bands = plan;
  bands.ndim = last;
  bands.shape[dim] = (rows + kTile - 1) / kTile;
  bands.strides[0][dim] = so * kTile;
  bands.strides[1][dim] = std::int64_t(sizeof(Word)) * kTile;
  bands.size = plan.size / columns / rows * bands.shape[dim];
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (kTile * columns));
  parallel_for(bands.size, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Position position = locate(bands, i);
      const std::int64_t height = std::min(kTile, rows - position.at[dim] * kTile);
      copy_tiles<Word>(position.data[0], position.data[1], height, columns, so, sa);
    }
  });
}

template <class Word>
void copy_words(const LoopPlan& plan) {
  const int last = plan.ndim - 1;
  const std::int64_t so = plan.strides[0][last], sa = plan.strides[1][last];
  if (const int dim = transposed_dim(plan, sizeof(Word)); dim >= 0) {
    return copy_transposed<Word>(plan, dim);
  }
  parallel_runs(plan, kGrain, [=](std::int64_t n, char* const data[]) {
    if (so == sizeof(Word) && sa == sizeof(Word)) {
      std::memcpy(data[0], data[1], n * sizeof(Word));
    } else if (so == sizeof(Word) && sa == 0) {
      Word* out = reinterpret_cast<Word*>(data[0]);
      const Word value = *reinterpret_cast<const Word*>(data[1]);
      for (std::int64_t i = 0; i < n; ++i) out[i] = value;
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        *reinterpret_cast<Word*>(data[0] + i * so) =
            *reinterpret_cast<const Word*>(data[1] + i * sa);
      }
    }
  });
}

}  // namespace

void fill(Out out, double value, std::int64_t integer) {
  const LoopPlan plan = make_plan(out);
  with_type(out.dtype, [&]<class T>(Tag<T>) {
    T filled;
    if constexpr (std::is_floating_point_v<T>) {
      filled = static_cast<T>(value);
    } else {
      filled = math::convert<T>(integer);
    }
    map_runs<T>(plan, [filled] { return filled; });
  });
}

void copy(In a, Out out) {
  check_same_shape("copy", a, out);
  const LoopPlan plan = make_plan(out, a);
  if (a.dtype == out.dtype) {
    return with_word(size_of(a.dtype), [&]<class Word>(Tag<Word>) { copy_words<Word>(plan); });
  }
  with_type(a.dtype, [&]<class From>(Tag<From>) {
    with_type(out.dtype, [&]<class To>(Tag<To>) {
      map_runs<To, From>(plan, [](From x) { return math::convert<To>(x); });
    });
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
