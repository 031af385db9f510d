// Views and loop plans: which dimensions merge, the loop order, and that any partition visits every
// element once.
#include "core/loop.h"

#include <numeric>

#include "expect.h"

using namespace needle;
using namespace needle::testing;

TEST(compact_views_are_recognised) {
  float data[24];
  View v = compact(data, {2, 3, 4});
  EXPECT(is_compact(v) && size_of(v) == 24);
  EXPECT(!is_compact(transposed(v)));
  v.shape[0] = 1, v.strides[0] = 99;  // the stride of an axis of size 1 is irrelevant
  EXPECT(is_compact(v));
  v.shape[1] = 0;
  EXPECT(is_compact(v) && size_of(v) == 0);
}

TEST(equal_layouts_merge_to_one_run) {
  float a[24], b[24];
  const LoopPlan plan = make_plan(compact(a, {2, 3, 4}), compact(b, {2, 3, 4}));
  EXPECT(plan.ndim == 1 && plan.shape[0] == 24 && plan.size == 24);
  const LoopPlan turned =
      make_plan(transposed(compact(a, {2, 3, 4})), transposed(compact(b, {2, 3, 4})));
  EXPECT(turned.ndim == 1 && turned.shape[0] == 24);
}

TEST(different_layouts_keep_two_dimensions) {
  float a[12], b[12];
  const LoopPlan plan = make_plan(compact(a, {3, 4}), transposed(compact(b, {4, 3})));
  EXPECT(plan.ndim == 2 && plan.shape[1] == 4);
  EXPECT(plan.strides[0][1] == 4 && plan.strides[1][1] == 12);
}

TEST(backward_outputs_are_turned_round) {
  float a[4], b[4];
  View out = compact(a, {4}), in = compact(b, {4});
  out.data = a + 3, out.strides[0] = -1;
  in.data = b + 3, in.strides[0] = -1;
  const LoopPlan plan = make_plan(out, in);
  EXPECT(plan.data[0] == reinterpret_cast<char*>(a) && plan.strides[0][0] == 4);
  EXPECT(plan.data[1] == reinterpret_cast<char*>(b) && plan.strides[1][0] == 4);
}

TEST(empty_and_single_elements) {
  float a[1];
  EXPECT(make_plan(compact(a, {})).size == 1);
  EXPECT(make_plan(compact(a, {1, 1})).ndim == 1);
  EXPECT(make_plan(compact(a, {3, 0})).size == 0);
}

TEST(every_element_is_visited_once_for_any_cut) {
  std::vector<int> data(3 * 4 * 5, 0);
  View v = compact(data.data(), {3, 4, 5});
  std::swap(v.shape[0], v.shape[2]);
  std::swap(v.strides[0], v.strides[2]);
  std::vector<int> other(60, 0);
  const LoopPlan plan = make_plan(compact(other.data(), {5, 4, 3}), v);
  EXPECT(plan.ndim == 3);
  for (std::int64_t grain = 1; grain <= 61; ++grain) {
    for (std::int64_t begin = 0; begin < plan.size; begin += grain) {
      const std::int64_t end = std::min(plan.size, begin + grain);
      for_each_run(plan, begin, end, [&](std::int64_t n, char* const at[]) {
        for (std::int64_t i = 0; i < n; ++i) {
          ++*reinterpret_cast<int*>(at[1] + i * plan.strides[1][2]);
        }
      });
    }
    for (int visits : data) EXPECT(visits == grain);
  }
}
