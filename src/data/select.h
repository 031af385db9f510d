// The augmentation steps compiled for an instruction set.
#pragma once

#include "data/steps.h"

namespace needle::data {

// The table of the instruction set of this name (one of the build's); throws Error for another.
const StepTable& step_table(const char* isa);

}  // namespace needle::data
