// Fills the step table of one instruction set.
#include "steps.h"

namespace needle::data::NEEDLE_ISA {
#define NEEDLE_QUOTE_(text) #text
#define NEEDLE_QUOTE(text) NEEDLE_QUOTE_(text)

constinit const StepTable steps = {
    .isa = NEEDLE_QUOTE(NEEDLE_ISA),
    .bytes = {&resize, &affine, &colour},
    .floats = {&resize, &affine, &colour},
    .emit = &emit,
};

}  // namespace needle::data::NEEDLE_ISA
