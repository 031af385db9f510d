// What an emptied block of the course says (apps/course): NotImplementedError in Python. Files with
// such blocks include this; nothing else throws it.
#pragma once

#include <stdexcept>

namespace needle {

struct NotImplemented : std::logic_error {
  explicit NotImplemented(const char* message);
  ~NotImplemented() override;
};

[[noreturn]] void not_implemented(const char* message);

}  // namespace needle
