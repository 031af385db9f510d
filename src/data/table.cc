// Fills the step table of one instruction set.
#include "steps.h"

namespace needle::data::NEEDLE_ISA {
namespace {

#define NEEDLE_QUOTE_(text) #text
#define NEEDLE_QUOTE(text) NEEDLE_QUOTE_(text)

}  // namespace

constinit const StepTable steps = {
    .isa = NEEDLE_QUOTE(NEEDLE_ISA),
#if __has_include("resize.cc")
    .resize_bytes = &resize,
    .resize_floats = &resize,
#else
    .resize_bytes = nullptr,
    .resize_floats = nullptr,
#endif
#if __has_include("affine.cc")
    .affine_bytes = &affine,
    .affine_floats = &affine,
#else
    .affine_bytes = nullptr,
    .affine_floats = nullptr,
#endif
#if __has_include("colour.cc")
    .colour_bytes = &colour,
    .colour_floats = &colour,
#else
    .colour_bytes = nullptr,
    .colour_floats = nullptr,
#endif
    .emit = &emit,
};

}  // namespace needle::data::NEEDLE_ISA
