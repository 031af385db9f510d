// Fills the step table of one instruction set.
#include "steps.h"

namespace needle::data::NEEDLE_ISA {
namespace {

#define NEEDLE_QUOTE_(text) #text
#define NEEDLE_QUOTE(text) NEEDLE_QUOTE_(text)

}  // namespace

constinit const StepTable steps = {
    .isa = NEEDLE_QUOTE(NEEDLE_ISA),
    .resize_bytes = &resize,
    .resize_floats = &resize,
    .affine_bytes = &affine,
    .affine_floats = &affine,
    .colour_bytes = &colour,
    .colour_floats = &colour,
    .emit = &emit,
};

}  // namespace needle::data::NEEDLE_ISA
