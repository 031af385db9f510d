// The kernel rows gather, scatter and scatter_add select whole rows (all axes but the first) by an
// index. Scattering walks the index in order, and threads share the columns of a row. So repeated
// indices give the same result for any number of threads.
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/loop.h"
#include "core/rows.h"
#include "core/scalar_math.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

std::int64_t index_at(const View& index, std::int64_t i) {
  return data_of<std::int64_t>(index)[i * index.strides[0]];
}

void check(const char* op, const View& many, const View& table, const View& index) {
  check_rows(op, many, table, index);
  const std::int64_t rows = table.shape[0];
  for (std::int64_t i = 0; i < index.shape[0]; ++i) {
    const std::int64_t row = index_at(index, i);
    NEEDLE_CHECK(row >= 0 && row < rows, "gather/scatter: every index must lie inside the axis");
  }
}

// Calls f(n, out, a) for each entry i in [begin, end) of `index` and each run in elements [from,
// to) of the row plan (operand 0: out, operand 1: a). An entry pairs row i of one array with row
// index[i] of the other, which is `out` if kIndexOut.
template <bool kIndexOut, class F>
void pair_rows(const LoopPlan& plan, In a, In index, Out out, std::int64_t begin, std::int64_t end,
               std::int64_t from, std::int64_t to, F&& f) {
  const std::int64_t bytes = size_of(a.dtype);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t chosen = index_at(index, i);
    const std::int64_t shift_out = (kIndexOut ? chosen : i) * out.strides[0] * bytes;
    const std::int64_t shift_a = (kIndexOut ? i : chosen) * a.strides[0] * bytes;
    for_each_run(plan, from, to, [&](std::int64_t n, char* const data[]) {
      f(n, data[0] + shift_out, data[1] + shift_a);
    });
  }
}

template <class T, class Combine>
void run(std::int64_t n, char* out, const char* a, std::int64_t so, std::int64_t sa,
         Combine&& put) {
  if (so == sizeof(T) && sa == sizeof(T)) {
    T* to = reinterpret_cast<T*>(out);
    const T* from = reinterpret_cast<const T*>(a);
    for (std::int64_t j = 0; j < n; ++j) put(to[j], from[j]);
  } else {
    for (std::int64_t j = 0; j < n; ++j) {
      put(*reinterpret_cast<T*>(out + j * so), *reinterpret_cast<const T*>(a + j * sa));
    }
  }
}

template <class T, class Combine>
void scatter_rows(In a, In index, Out out, Combine&& put) {
  check("scatter", a, out, index);
  const LoopPlan plan = make_plan(row_of(out), row_of(a));
  const std::int64_t n = index.shape[0];
  if (n == 0 || plan.size == 0) return;
  const int last = plan.ndim - 1;
  const std::int64_t so = plan.strides[0][last], sa = plan.strides[1][last];
  const std::int64_t grain = std::max<std::int64_t>(16, kGrain / n);
  parallel_for(plan.size, grain, [&](std::int64_t from, std::int64_t to) {
    pair_rows<true>(plan, a, index, out, 0, n, from, to,
                    [&](std::int64_t count, char* to_row, const char* from_row) {
                      run<T>(count, to_row, from_row, so, sa, put);
                    });
  });
}

}  // namespace

void gather(In a, In index, Out out) {
  check("gather", out, a, index);
  const LoopPlan plan = make_plan(row_of(out), row_of(a));
  if (index.shape[0] == 0 || plan.size == 0) return;
  const int last = plan.ndim - 1;
  const std::int64_t so = plan.strides[0][last], sa = plan.strides[1][last];
  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / plan.size);
  with_word(size_of(a.dtype), [&]<class Word>(Tag<Word>) {
    parallel_for(index.shape[0], grain, [&](std::int64_t begin, std::int64_t end) {
      pair_rows<false>(plan, a, index, out, begin, end, 0, plan.size,
                       [&](std::int64_t n, char* to, const char* from) {
                         run<Word>(n, to, from, so, sa, [](Word& x, Word y) { x = y; });
                       });
    });
  });
}

void scatter(In a, In index, Out out) {
  with_word(size_of(a.dtype), [&]<class Word>(Tag<Word>) {
    scatter_rows<Word>(a, index, out, [](Word& x, Word y) { x = y; });
  });
}

void scatter_add(In a, In index, Out out) {
  with_type(a.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      scatter_rows<T>(a, index, out, [](T& x, T y) { x |= y; });
    } else {
      scatter_rows<T>(a, index, out, [](T& x, T y) { x = math::add(x, y); });
    }
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
