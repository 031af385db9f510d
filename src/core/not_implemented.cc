#include "not_implemented.h"

namespace needle {

NotImplemented::NotImplemented(const char* message) : std::logic_error(message) {}
NotImplemented::~NotImplemented() = default;

void not_implemented(const char* message) { throw NotImplemented(message); }

}  // namespace needle
