// The shape and dtype rules of one call, for every row of the kernel table that is not elementwise.
// Kernels rely on them, since other views would make them access memory out of bounds. The bindings
// call a row's rule before its kernel, for every backend and instruction set.
#pragma once

#include "kernel_table.h"

namespace needle {

// Returns one function per row. It takes the arguments of the kernel and throws Error if they break
// a rule. It is null if the kernel checks its views itself.
const KernelTable& kernel_rules();

}  // namespace needle
