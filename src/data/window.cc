// The pass that writes an image's output; see window.h.
#include "steps.h"

namespace needle::data::NEEDLE_ISA {

void emit(const Emission&) {}

}  // namespace needle::data::NEEDLE_ISA
