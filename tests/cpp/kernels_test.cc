// Tests that the conformance suite cannot do from Python: casts that are undefined in C++, and
// kernels under the thread sanitizer. tests/native compares values.
#include <cstdint>
#include <limits>

#include "core/thread_pool.h"
#include "expect.h"

using namespace needle;
using namespace needle::testing;

TEST(float_casts_are_defined_everywhere) {
  for_each_isa([](const KernelTable& t) {
    float in[] = {NAN, INFINITY, -INFINITY, 2147483648.0f, -2147483648.0f, 3.99f, -3.99f, -1, 300};
    std::int32_t narrow[9];
    std::int64_t wide[9];
    std::uint8_t bytes[9];
    bool truth[9];
    t.copy(compact(in, {9}), compact(narrow, {9}));
    t.copy(compact(in, {9}), compact(wide, {9}));
    t.copy(compact(in, {9}), compact(bytes, {9}));
    t.copy(compact(in, {9}), compact(truth, {9}));
    EXPECT(narrow[0] == 0 && narrow[1] == 2147483647 && narrow[2] == -2147483647 - 1);
    EXPECT(narrow[3] == 2147483647 && narrow[4] == -2147483647 - 1);
    EXPECT(narrow[5] == 3 && narrow[6] == -3);
    EXPECT(wide[1] == std::numeric_limits<std::int64_t>::max() && wide[3] == 2147483648);
    EXPECT(bytes[5] == 3 && bytes[7] == 255 && bytes[8] == 44);
    EXPECT(truth[0] && truth[6]);
  });
}

TEST(scattering_keeps_the_order_of_equal_indices) {
  for_each_isa([](const KernelTable& t) {
    set_num_threads(4);
    const std::int64_t n = 100, width = 3000;
    std::vector<float> rows(n * width), table(2 * width, 0.0f);
    std::vector<std::int64_t> index(n);
    for (std::int64_t i = 0; i < n; ++i) {
      index[i] = i % 2;
      for (std::int64_t j = 0; j < width; ++j) rows[i * width + j] = float(i);
    }
    const View a = compact(rows.data(), {n, width}), into = compact(table.data(), {2, width}),
               at = compact(index.data(), {n});
    t.scatter_add(a, at, into);
    EXPECT(table[0] == 2450 && table[2 * width - 1] == 2500);
    t.scatter(a, at, into);
    EXPECT(table[width - 1] == 98 && table[width] == 99);
    t.gather(into, at, a);
    EXPECT(rows[0] == 98 && rows[n * width - 1] == 99);
    index[7] = 2;
    EXPECT_THROWS(t.gather(into, at, a));
    index[7] = -1;
    EXPECT_THROWS(t.scatter(a, at, into));
  });
}
