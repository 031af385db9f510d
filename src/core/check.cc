#include "check.h"

namespace needle {

Error::Error(const std::string& message) : std::invalid_argument(message) {}
Error::~Error() = default;

void raise_error(const char* message) { throw Error(message); }
void raise_error(const std::string& message) { throw Error(message); }

}  // namespace needle
