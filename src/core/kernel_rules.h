// The shape and dtype rules of one call, for every row of the kernel table that is not elementwise.
// Kernels rely on them, since other views would make them access memory out of bounds. The bindings
// call a row's rule before its kernel, for every backend and instruction set.
#pragma once

#include "kernel_table.h"

namespace needle {

// One function per row, with the arguments of its kernel, throws Error if a rule is broken. It is
// null where the kernel checks its views itself.
const KernelTable& kernel_rules();

}  // namespace needle
