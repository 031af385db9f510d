// Errors of the C++ side. NEEDLE_CHECK states a rule the caller must keep (it becomes a Python
// exception in the bindings); assert() is for our own bugs.
// raise_error and Error's members are defined in check.cc, so that objects compiled for different
// instruction sets share no inline copy of them.
#pragma once

#include <stdexcept>
#include <string>

namespace needle {

// Becomes ValueError in Python, the nearest built-in of needle.errors.NeedleError.
struct Error : std::invalid_argument {
  explicit Error(const std::string& message);
  ~Error() override;
};

[[noreturn]] void raise_error(const char* message);
[[noreturn]] void raise_error(const std::string& message);

#define NEEDLE_CHECK(condition, message)              \
  do {                                                \
    if (!(condition)) ::needle::raise_error(message); \
  } while (false)

}  // namespace needle
