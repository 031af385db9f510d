// Errors of the C++ side. NEEDLE_CHECK states a rule the caller must keep (it becomes a Python
// exception in the bindings); assert() is for our own bugs.
#pragma once

#include <stdexcept>
#include <string>

namespace needle {

// Becomes needle.errors.NeedleError's nearest built-in (ValueError) in Python.
struct Error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

#define NEEDLE_CHECK(condition, message)               \
  do {                                                 \
    if (!(condition)) throw ::needle::Error(message);  \
  } while (false)

}  // namespace needle
