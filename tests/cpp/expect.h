// The macros of the C++ tests: TEST(name) { ... } registers a test, EXPECT(condition) reports and
// continues, EXPECT_NEAR(got, want, tolerance) compares; main(names) runs the named tests, or all.
// Include it once per program.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/select.h"
#include "views.h"

namespace needle::testing {

struct Test {
  const char* name;
  void (*run)();
};
inline std::vector<Test> tests;
inline int failures = 0;
// Describes the subject of the following comparisons for the course, which shows the first failure.
inline char given[256] = "";
inline const char* cause = "";
#define GIVEN(...)                \
  (::needle::testing::cause = "", \
   std::snprintf(::needle::testing::given, sizeof ::needle::testing::given, __VA_ARGS__))
// Sets the likely cause of a failure in the next comparison, unless an earlier one holds.
inline void likely(bool holds, const char* text) {
  if (holds && cause[0] == '\0') cause = text;
}

inline void say_given() {
  if (given[0] != '\0') std::printf("given: %s\n", given);
  if (cause[0] != '\0') std::printf("cause: %s\n", cause);
}

struct Registration {
  Registration(const char* name, void (*run)()) { tests.push_back({name, run}); }
};

#define TEST(name)                                                         \
  static void name();                                                      \
  static ::needle::testing::Registration registration_##name(#name, name); \
  static void name()

#define EXPECT(condition)                                                 \
  do {                                                                    \
    if (!(condition)) {                                                   \
      ++::needle::testing::failures;                                      \
      std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                     \
  } while (false)

#define EXPECT_NEAR(got, want, tolerance)                                                \
  do {                                                                                   \
    const double g = (got), w = (want);                                                  \
    if (!(std::fabs(g - w) <= (tolerance))) {                                            \
      ++::needle::testing::failures;                                                     \
      ::needle::testing::say_given();                                                    \
      std::printf("%s:%d: %s is %.17g, wanted %.17g\n", __FILE__, __LINE__, #got, g, w); \
    }                                                                                    \
  } while (false)

#define EXPECT_THROWS(expression)     \
  do {                                \
    bool thrown = false;              \
    try {                             \
      expression;                     \
    } catch (const std::exception&) { \
      thrown = true;                  \
    }                                 \
    EXPECT(thrown && #expression);    \
  } while (false)

// Calls f(table) with the kernels of every instruction set of this machine.
template <class F>
void for_each_isa(F&& f) {
  for (const std::string& isa : cpu::available_isas()) {
    cpu::select_isa(isa);
    f(cpu::selected_table());
  }
}

}  // namespace needle::testing

int main(int count, char** names) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // line buffered, for a test that never returns
  for (const auto& test : needle::testing::tests) {
    const auto is_named = [&](const char* name) { return std::strcmp(name, test.name) == 0; };
    if (count > 1 && std::none_of(names + 1, names + count, is_named)) continue;
    const int before = needle::testing::failures;
    needle::testing::given[0] = '\0';
    try {
      test.run();
    } catch (const std::exception& error) {
      ++needle::testing::failures;
      std::printf("%s: threw %s\n", test.name, error.what());
    }
    std::printf("%s %s\n", before == needle::testing::failures ? "ok    " : "FAILED", test.name);
  }
  return needle::testing::failures == 0 ? 0 : 1;
}
