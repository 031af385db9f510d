// Helpers that the pybind11 modules share. They translate needle's errors to Python exceptions, and
// memory statistics to a dict.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include "array_type.h"
#include "core/buffer_cache.h"
#include "core/check.h"

namespace needle::bindings {

template <class F>
auto translated(F&& f) {
  try {
    return f();
  } catch (const PythonError&) {
    throw pybind11::error_already_set();
  } catch (const Error& error) {
    throw pybind11::value_error(error.what());
  }
}

// Adds `function` to the module as `name`, and translates the errors that it throws.
template <class R, class... Args, class... Extra>
void def(pybind11::module_& m, const char* name, R (*function)(Args...), const Extra&... extra) {
  const auto call = [function](Args... args) -> R {
    return translated([&]() -> R { return function(std::forward<Args>(args)...); });
  };
  m.def(name, call, extra...);
}

// Returns the statistics in the form of Backend.memory_stats.
inline pybind11::dict dict_of(const MemoryStats& stats) {
  pybind11::dict result;
  result["in_use"] = stats.in_use;
  result["cached"] = stats.cached;
  result["peak"] = stats.peak;
  result["allocations"] = stats.allocations;
  result["reuses"] = stats.reuses;
  return result;
}

}  // namespace needle::bindings
