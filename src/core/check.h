// Errors of the C++ code. NEEDLE_CHECK checks what a caller must ensure; the bindings turn its
// Error into a Python exception. assert() is for bugs of needle itself. raise_error and Error's
// members are defined in check.cc, so that objects compiled for different instruction sets share no
// inline copy of them.
#pragma once

#include <stdexcept>
#include <string>

namespace needle {

// Becomes ValueError in Python, the built-in exception nearest to needle.errors.NeedleError.
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
