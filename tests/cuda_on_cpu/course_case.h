// Helpers for course_test.cc: arrays on the emulated device, and cases that report the likely cause
// of a failure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "../cpp/views.h"
#include "cuda/allocator.h"
#include "cuda/device.h"

namespace needle::cuda {
namespace {

using testing::compact;
using testing::transposed;
using Values = std::vector<double>;

struct WrongAnswer {
  std::string given, expected, got, cause;
};

struct Mistake {  // a likely cause and the values it gives; without values, any wrong value matches
  const char* cause;
  Values values;
};

bool near(double got, double want, double tolerance) {
  return std::isnan(want) ? std::isnan(got) : std::fabs(got - want) <= tolerance;
}

bool all_near(const Values& got, const Values& want, double tolerance) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!near(got[i], want[i], tolerance)) return false;
  }
  return true;
}

// Returns the elements around `at` as text.
std::string shown(const Values& values, std::size_t at) {
  const std::size_t begin = at < 2 ? 0 : at - 2, end = std::min(begin + 8, values.size());
  std::string text = "elements " + std::to_string(begin) + " to " + std::to_string(end - 1) + ":";
  char number[32];
  for (std::size_t i = begin; i < end; ++i) {
    std::snprintf(number, sizeof number, " %.7g", std::isnan(values[i]) ? NAN : values[i]);
    text += number;
  }
  return text;
}

void expect(const std::string& given, const Values& got, const Values& want, double tolerance,
            const std::vector<Mistake>& mistakes = {}) {
  std::size_t at = 0;
  while (at < want.size() && near(got[at], want[at], tolerance)) ++at;
  if (at == want.size()) return;
  WrongAnswer wrong{given, shown(want, at), shown(got, at), ""};
  for (const Mistake& mistake : mistakes) {
    const bool made = mistake.values.empty() || all_near(got, mistake.values, tolerance);
    if (wrong.cause.empty() && made) wrong.cause = mistake.cause;
  }
  if (std::isnan(got[at])) wrong.cause = "fresh memory is NaN here: not written, or read too early";
  throw wrong;
}

// An array on the device with its elements in row-major order.
template <class T>
class Array {
 public:
  Array(std::initializer_list<std::int64_t> shape, const std::vector<T>& values)
      : values_(values), memory_(values.size() * sizeof(T), 0) {
    view = compact(memory_.as<T>(), shape);
    copy_later(stream(0), memory_.as<void>(), values.data(), values.size() * sizeof(T));
    synchronize(0);
  }
  explicit Array(std::initializer_list<std::int64_t> shape)  // still uninitialised
      : values_(product(shape)), memory_(values_.size() * sizeof(T), 0) {
    view = compact(memory_.as<T>(), shape);
  }
  T* data() const { return memory_.as<T>(); }
  Values values() const {
    std::vector<T> host(values_.size());
    copy_to_host(0, host.data(), memory_.as<void>(), host.size() * sizeof(T));
    return Values(host.begin(), host.end());
  }
  T operator[](std::int64_t i) const { return values_[std::size_t(i)]; }  // initial values

  View view;

 private:
  static std::size_t product(std::initializer_list<std::int64_t> shape) {
    return std::size_t(
        std::accumulate(shape.begin(), shape.end(), std::int64_t(1), std::multiplies<>()));
  }
  std::vector<T> values_;
  Temporary memory_;
};

template <class T>
std::vector<T> numbers(std::int64_t count, std::int64_t factor, std::int64_t below) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[std::size_t(i)] = T(i * factor % below);
  return values;
}

Values filled(std::int64_t count, const std::function<double(std::int64_t)>& value) {
  Values values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[std::size_t(i)] = value(i);
  return values;
}

}  // namespace
}  // namespace needle::cuda
