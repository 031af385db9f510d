// Translates needle's errors into Python exceptions for the few functions bound by pybind11.
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
