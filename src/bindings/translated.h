// The few functions that go through pybind11 let its exceptions through: needle's errors become
// Python's here.
#pragma once

#include <pybind11/pybind11.h>

#include "array_type.h"
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

}  // namespace needle::bindings
