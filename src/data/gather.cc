// All rows share one loop plan. It merges adjacent axes if the strides of both arrays allow it, so
// a compact row is one memcpy. Otherwise the axis with the smallest stride in `out` is innermost.
#include "gather.h"

#include <algorithm>
#include <cstring>

#include "core/loop.h"
#include "core/rows.h"

namespace needle::data {
namespace {

constexpr std::int64_t kBytesPerChunk = 1 << 16;
constexpr std::int64_t kBytesAlone = 1
                                     << 20;  // fewer bytes are copied without waking another thread
constexpr std::int64_t kAhead = 4;           // rows whose first cache line is prefetched

// Copies a row. It lies `out_shift` and `from_shift` bytes after the rows for which the plan was
// made.
template <class Word>
void copy_row(const LoopPlan& plan, std::int64_t out_shift, std::int64_t from_shift) {
  constexpr std::int64_t kSize = sizeof(Word);
  const std::int64_t so = plan.strides[0][plan.ndim - 1], sa = plan.strides[1][plan.ndim - 1];
  for_each_run(plan, 0, plan.size, [&](std::int64_t n, char* const data[]) {
    char* const to = data[0] + out_shift;
    const char* const from = data[1] + from_shift;
    if (so == kSize && sa == kSize) {
      std::memcpy(to, from, n * kSize);
    } else {
      for (std::int64_t i = 0; i < n; ++i) std::memcpy(to + i * so, from + i * sa, kSize);
    }
  });
}

}  // namespace

void gather_rows(const View& source, std::span<const std::int64_t> indices, const View& out) {
  const LoopPlan plan = make_plan(row_of(out), row_of(source));
  const std::int64_t item = size_of(out.dtype), bytes = plan.size * item;
  if (bytes == 0) return;
  const std::int64_t step = source.strides[0] * item, out_step = out.strides[0] * item;
  const bool one_piece = plan.size == 1 || (plan.ndim == 1 && plan.strides[0][0] == item &&
                                            plan.strides[1][0] == item);
  const bool compact = one_piece && step == bytes && out_step == bytes;
  const auto copy = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin, next; i < end; i = next) {
      next = i + 1;
      if (!one_piece) {
        with_word(item, [&]<class Word>(Tag<Word>) {
          copy_row<Word>(plan, i * out_step, indices[i] * step);
        });
        continue;
      }
      while (compact && next < end && indices[next] == indices[next - 1] + 1) ++next;
      if (i + kAhead < end) __builtin_prefetch(plan.data[1] + indices[i + kAhead] * step);
      std::memcpy(plan.data[0] + i * out_step, plan.data[1] + indices[i] * step,
                  (next - i) * bytes);
    }
  };
  const auto count = static_cast<std::int64_t>(indices.size());
  const std::int64_t together = std::max<std::int64_t>(1, kBytesPerChunk / bytes);
  parallel_for(count, count * bytes <= kBytesAlone ? count : together, copy);
}

}  // namespace needle::data
