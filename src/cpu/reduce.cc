// The kernel row reduce. Kept and reduced dimensions have separate loop plans. In "rows", the
// reduced elements of an output are contiguous, and several vector accumulators run along them. In
// "columns", the outputs are contiguous; each column has an accumulator, and rows are added one by
// one. In both, blocks of bounded length are folded in the element's own type and their results in
// a wider one, so the error of a float32 sum does not grow with its length. If there are few
// outputs, their elements are cut into segments of fixed length, whose results are combined in
// order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "core/not_implemented.h"
#include "core/reduce_plan.h"
#include "core/scratch.h"
#include "core/simd.h"
#include "core/view_rules.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr std::int64_t kBlock = 1024;     // elements folded in their own type, along a run
constexpr std::int64_t kBlockRows = 64;   // the same, down a column
constexpr std::int64_t kColumns = 256;    // columns accumulated together
constexpr std::int64_t kFewColumns = 96;  // up to half of this many are padded to it
constexpr std::int64_t kSegment = 65536;  // elements of a segment
constexpr std::int64_t kManyRows = 32,
                       kManyColumns = 4096;  // this many outputs occupy all threads

// ---- the meaning of a fold: Lane is the type in which the loop works (integers wrap as unsigned,
// bool is 0 or 1), Wide collects the results of blocks ----

template <class T>
using LaneOf = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                                           std::type_identity<T>>::type;

template <class T>
struct Sum {
  using Lane = LaneOf<T>;
  static constexpr Lane identity = 0;
  template <class V>
  [[gnu::always_inline]] static V step(V total, V x) {
    return total + x;
  }
  struct Wide {
    std::conditional_t<std::is_same_v<T, float>, double, Lane> total = 0, lost = 0;
    void add(Lane x) {
      if constexpr (std::is_same_v<T, double>) {  // Neumaier: keeps what rounding drops
        const double next = total + x;
        lost += std::fabs(total) >= std::fabs(x) ? (total - next) + x : (x - next) + total;
        total = next;
      } else {
        total += x;
      }
    }
    void add(const Wide& other) {
      if constexpr (std::is_same_v<T, float>) {
        total += other.total;
      } else {
        add(other.total);
        lost += other.lost;
      }
    }
    T value() const {
      if constexpr (std::is_same_v<T, double>) {  // an infinite total has no meaningful remainder
        return std::isfinite(total) ? total + lost : total;
      }
      return static_cast<T>(total);
    }
  };
};

template <class T>
struct Prod {
  using Lane = LaneOf<T>;
  static constexpr Lane identity = 1;
  template <class V>
  [[gnu::always_inline]] static V step(V total, V x) {
    return total * x;
  }
  struct Wide {
    std::conditional_t<std::is_same_v<T, float>, double, Lane> total = 1;
    void add(Lane x) { total *= x; }
    void add(const Wide& other) { total *= other.total; }
    T value() const { return static_cast<T>(total); }
  };
};

// The rules of max and min, which on bytes serve any and all too. NaN differs from itself and wins.
template <class T, bool kMax>
struct Extreme {
  using Lane = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
  using Limits = std::numeric_limits<T>;
  static constexpr Lane identity = Limits::has_infinity
                                       ? (kMax ? -Limits::infinity() : Limits::infinity())
                                       : (kMax ? Limits::lowest() : Limits::max());
  template <class V>
  [[gnu::always_inline]] static V step(V best, V x) {
    if constexpr (kMax)
      return ((x > best) | (x != x)) ? x : best;
    else
      return ((x < best) | (x != x)) ? x : best;
  }
  struct Wide {
    Lane best = identity;
    void add(Lane x) { best = step<Lane>(best, x); }
    void add(const Wide& other) { add(other.best); }
    T value() const { return static_cast<T>(best); }
  };
};

// ---- rows ----

template <class Rule>
using VectorOf = simd::Vector<typename Rule::Lane>;

// Folds `count` groups of four vectors, at most kGroups: short chains keep float32 sums accurate.
constexpr int kGroups = 8;
template <class Rule>
[[gnu::always_inline]] inline VectorOf<Rule> fold_groups(const typename Rule::Lane* p, int count) {
  using V = VectorOf<Rule>;
  constexpr int lanes = simd::kLanes<typename Rule::Lane>;
  V a = simd::load(p), b = simd::load(p + lanes), c = simd::load(p + 2 * lanes),
    d = simd::load(p + 3 * lanes);
  for (int i = 1; i < count; ++i) {
    p += 4 * lanes;
    a = Rule::template step<V>(a, simd::load(p));
    b = Rule::template step<V>(b, simd::load(p + lanes));
    c = Rule::template step<V>(c, simd::load(p + 2 * lanes));
    d = Rule::template step<V>(d, simd::load(p + 3 * lanes));
  }
  return Rule::template step<V>(Rule::template step<V>(a, b), Rule::template step<V>(c, d));
}

// Folds the lanes of a vector by halves; such chains of consecutive rows can overlap.
template <class Rule, class V>
[[gnu::always_inline]] inline typename Rule::Lane fold_lanes(const V& v) {
  using Lane = typename Rule::Lane;
  constexpr int lanes = sizeof(V) / sizeof(Lane);
  if constexpr (lanes * sizeof(Lane) > 16) {
    typedef Lane Half __attribute__((vector_size(sizeof(V) / 2)));
    Half low, high;
    std::memcpy(&low, &v, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
    return fold_lanes<Rule>(Rule::template step<Half>(low, high));
  } else {
    Lane total = static_cast<Lane>(v[0]);
    for (int lane = 1; lane < lanes; ++lane) {
      total = Rule::template step<Lane>(total, static_cast<Lane>(v[lane]));
    }
    return total;
  }
}

// Folds n <= kBlock contiguous elements.
template <class Rule>
typename Rule::Lane fold_block(const typename Rule::Lane* p, std::int64_t n) {
  /// BEGIN SOLUTION [kernel-fold]
  using Lane = typename Rule::Lane;
  using V = VectorOf<Rule>;
  constexpr int lanes = simd::kLanes<Lane>, group = 4 * lanes;
  Lane total = Rule::identity;
  std::int64_t i = 0;
  if (n >= group) {
    V sum = fold_groups<Rule>(p, int(std::min<std::int64_t>(kGroups, n / group)));
    for (i = std::min<std::int64_t>(kGroups, n / group) * group; i + group <= n;) {
      const int count = int(std::min<std::int64_t>(kGroups, (n - i) / group));
      sum = Rule::template step<V>(sum, fold_groups<Rule>(p + i, count));
      i += count * group;
    }
    total = fold_lanes<Rule>(sum);
  }
  for (; i < n; ++i) total = Rule::template step<Lane>(total, p[i]);
  return total;
  /// END SOLUTION
}

template <class Rule>
typename Rule::Lane fold_strided(const char* p, std::int64_t n, std::int64_t stride) {
  using Lane = typename Rule::Lane;
  Lane part[4] = {Rule::identity, Rule::identity, Rule::identity, Rule::identity};
  for (std::int64_t i = 0; i < n; ++i) {
    Lane& total = part[i & 3];
    total = Rule::template step<Lane>(total, *reinterpret_cast<const Lane*>(p + i * stride));
  }
  return Rule::template step<Lane>(Rule::template step<Lane>(part[0], part[1]),
                                   Rule::template step<Lane>(part[2], part[3]));
}

struct Plan : ReducePlan {
  char* base;  // a's first element; the addresses of the two plans are relative to it
  bool columns;
};

template <class Rule>
typename Rule::Wide fold_row(const Plan& plan, const char* a, std::int64_t begin,
                             std::int64_t end) {
  using Lane = typename Rule::Lane;
  const std::int64_t stride = plan.reduced.strides[0][plan.reduced.ndim - 1];
  typename Rule::Wide wide;
  const auto fold = [&](const char* p, std::int64_t n) {
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t count = std::min(kBlock, n - i);
      wide.add(stride == sizeof(Lane)
                   ? fold_block<Rule>(reinterpret_cast<const Lane*>(p) + i, count)
                   : fold_strided<Rule>(p + i * stride, count, stride));
    }
  };
  if (plan.reduced.ndim == 1) {  // one run: rows are often short, and a walk costs more
    fold(a + (plan.reduced.data[0] - plan.base) + begin * stride, end - begin);
    return wide;
  }
  for_each_run(plan.reduced, begin, end,
               [&](std::int64_t n, char* const data[]) { fold(a + (data[0] - plan.base), n); });
  return wide;
}

// Returns true for short contiguous rows, for which fold_row would cost more than the additions.
template <class Rule>
bool is_one_block(const Plan& plan, std::int64_t n) {
  return plan.reduced.ndim == 1 && n <= kBlock &&
         plan.reduced.strides[0][0] == std::int64_t(sizeof(typename Rule::Lane));
}

// ---- columns ----

template <class Rule>
struct ColumnTile {
  using Lane = typename Rule::Lane;
  Lane total[kColumns];
  typename Rule::Wide wide[kColumns];
  std::int64_t columns, rows = 0;

  explicit ColumnTile(std::int64_t columns) : columns(columns) {
    std::fill_n(total, columns, Rule::identity);
  }
  void flush() {
    for (std::int64_t j = 0; j < columns; ++j) wide[j].add(total[j]);
    std::fill_n(total, columns, Rule::identity);
    rows = 0;
  }
  void add_rows(const char* a, std::int64_t n, std::int64_t stride) {
    for (std::int64_t i = 0; i < n;) {
      const Lane* p = reinterpret_cast<const Lane*>(a + i * stride);
      if (i + 4 <= n) {
        add_four(p, stride / std::int64_t(sizeof(Lane)));
        i += 4, rows += 4;
      } else {
        for (std::int64_t j = 0; j < columns; ++j) {
          total[j] = Rule::template step<Lane>(total[j], p[j]);
        }
        ++i, ++rows;
      }
      if (rows >= kBlockRows) flush();
    }
  }
  void add_four(const Lane* p, std::int64_t stride) {
    const Lane *q = p + stride, *r = q + stride, *s = r + stride;
    for (std::int64_t j = 0; j < columns; ++j) {
      const Lane front = Rule::template step<Lane>(p[j], q[j]);
      const Lane back = Rule::template step<Lane>(r[j], s[j]);
      total[j] = Rule::template step<Lane>(total[j], Rule::template step<Lane>(front, back));
    }
  }
};

// Folds contiguous rows of few columns. Several rows are processed as one, since vectors would be
// short.
template <class Rule, class Emit>
void fold_wide_rows(const char* a, std::int64_t n, std::int64_t rows, Emit&& emit) {
  const std::int64_t merged = kFewColumns / n, row = n * std::int64_t(sizeof(typename Rule::Lane));
  ColumnTile<Rule> tile(merged * n);
  tile.add_rows(a, rows / merged, merged * row);
  tile.columns = rows % merged * n;  // the remainder, a shorter row
  if (tile.columns > 0) tile.add_rows(a + rows / merged * merged * row, 1, row);
  tile.columns = merged * n;
  tile.flush();
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 1; i < merged; ++i) tile.wide[j].add(tile.wide[i * n + j]);
    emit(j, tile.wide[j]);
  }
}

// ---- both: reduces elements [begin, end) of n neighbouring outputs, emit(j, wide) for each ----

template <class Rule, class Emit>
void fold_run(const Plan& plan, const char* a, std::int64_t n, std::int64_t begin, std::int64_t end,
              Emit&& emit) {
  if (!plan.columns) {
    const std::int64_t step = plan.kept.strides[0][plan.kept.ndim - 1];
    if (is_one_block<Rule>(plan, end - begin)) {
      const char* row =
          a + (plan.reduced.data[0] - plan.base) + begin * sizeof(typename Rule::Lane);
      for (std::int64_t j = 0; j < n; ++j, row += step) {
        typename Rule::Wide wide;
        wide.add(fold_block<Rule>(reinterpret_cast<const typename Rule::Lane*>(row), end - begin));
        emit(j, wide);
      }
      return;
    }
    for (std::int64_t j = 0; j < n; ++j) emit(j, fold_row<Rule>(plan, a + j * step, begin, end));
    return;
  }
  using Lane = typename Rule::Lane;
  const std::int64_t stride = plan.reduced.strides[0][plan.reduced.ndim - 1];
  if (plan.reduced.ndim == 1 && 2 * n <= kFewColumns && stride == n * std::int64_t(sizeof(Lane))) {
    return fold_wide_rows<Rule>(a + (plan.reduced.data[0] - plan.base) + begin * stride, n,
                                end - begin, emit);
  }
  for (std::int64_t first = 0; first < n; first += kColumns) {
    ColumnTile<Rule> tile(std::min(kColumns, n - first));
    const char* corner = a + first * std::int64_t(sizeof(typename Rule::Lane));
    for_each_run(plan.reduced, begin, end, [&](std::int64_t rows, char* const data[]) {
      tile.add_rows(corner + (data[0] - plan.base), rows, stride);
    });
    tile.flush();
    for (std::int64_t j = 0; j < tile.columns; ++j) emit(first + j, tile.wide[j]);
  }
}

template <class T>
void store(char* out, std::int64_t index, std::int64_t stride, T value) {
  *reinterpret_cast<T*>(out + index * stride) = value;
}

template <class Rule, class T>
void reduce_whole(const Plan& plan) {
  const std::int64_t stride = plan.kept.strides[1][plan.kept.ndim - 1];
  const std::int64_t reduced = plan.reduced.size;
  const std::int64_t least = plan.columns ? 64 : 1;
  const std::int64_t grain = std::max(least, kGrain / std::max<std::int64_t>(1, reduced));
  parallel_runs(plan.kept, grain, [&](std::int64_t n, char* const data[]) {
    char* out = data[1];
    fold_run<Rule>(plan, data[0], n, 0, reduced, [&](std::int64_t j, const auto& wide) {
      store<T>(out, j, stride, wide.value());
    });
  });
}

template <class Rule, class T>
void reduce_segments(const Plan& plan, std::int64_t length) {
  using Wide = typename Rule::Wide;
  const std::int64_t kept = plan.kept.size, reduced = plan.reduced.size;
  const std::int64_t segments = (reduced + length - 1) / length;
  const Scratch scratch(segments * kept * sizeof(Wide));
  Wide* partial = scratch.as<Wide>();
  parallel_for(segments, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t s = first; s < last; ++s) {
      Wide* mine = partial + s * kept;
      for_each_run(plan.kept, 0, kept, [&](std::int64_t n, char* const data[]) {
        fold_run<Rule>(plan, data[0], n, s * length, std::min(reduced, (s + 1) * length),
                       [&](std::int64_t j, const Wide& wide) { mine[j] = wide; });
        mine += n;
      });
    }
  });
  const std::int64_t stride = plan.kept.strides[1][plan.kept.ndim - 1];
  std::int64_t index = 0;
  for_each_run(plan.kept, 0, kept, [&](std::int64_t n, char* const data[]) {
    for (std::int64_t j = 0; j < n; ++j, ++index) {
      for (std::int64_t s = 1; s < segments; ++s) partial[index].add(partial[s * kept + index]);
      store<T>(data[1], j, stride, partial[index].value());
    }
  });
}

template <class Rule, class T>
void reduce_typed(const Plan& plan) {
  const std::int64_t kept = plan.kept.size;
  if (kept == 0) return;
  const std::int64_t length =
      plan.columns ? std::max<std::int64_t>(kBlockRows, kSegment / kept) : kSegment;
  const bool few = kept < (plan.columns ? kManyColumns : kManyRows);
  if (few && plan.reduced.size > length) {
    reduce_segments<Rule, T>(plan, length);
  } else {
    reduce_whole<Rule, T>(plan);
  }
}

Plan plan_of(In a, Out out) {
  Plan plan{make_reduce_plan(a, out), static_cast<char*>(a.data), false};
  const std::int64_t across = plan.kept.strides[0][plan.kept.ndim - 1];
  const std::int64_t along = plan.reduced.strides[0][plan.reduced.ndim - 1];
  plan.columns = across == std::int64_t(size_of(a.dtype)) && along != across && along != 0;
  return plan;
}

}  // namespace

void reduce(ReduceOp op, In a, Out out) {
  check_reduced_shape("reduce", a, out);
  check_same_dtype("reduce", a, out);
  const Plan plan = plan_of(a, out);
  with_type(a.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_same_v<T, bool>) {
      if (op == ReduceOp::any) return reduce_typed<Extreme<bool, true>, bool>(plan);
      if (op == ReduceOp::all) return reduce_typed<Extreme<bool, false>, bool>(plan);
    } else {
      if (op == ReduceOp::max) return reduce_typed<Extreme<T, true>, T>(plan);
      if (op == ReduceOp::min) return reduce_typed<Extreme<T, false>, T>(plan);
      if constexpr (sizeof(T) > 1) {
        if (op == ReduceOp::sum) return reduce_typed<Sum<T>, T>(plan);
        if (op == ReduceOp::prod) return reduce_typed<Prod<T>, T>(plan);
      }
    }
    raise_error("reduce: the operation does not take this dtype; convert the operand first");
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
