// Access to the augmentation steps compiled for an instruction set.
#pragma once

#include "data/steps.h"

namespace needle::data {

// Returns the table of the named instruction set (one of the build's); throws Error for any other
// name.
const StepTable& step_table(const char* isa);

}  // namespace needle::data
