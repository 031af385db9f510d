// The shape and dtype rules between the views of one call, for every row of the kernel table that
// is not elementwise. Kernels rely on them: with other views they would read or write outside their
// buffers. The bindings call a row's rule before its kernel, for every backend and instruction set.
#pragma once

#include "kernel_table.h"

namespace needle {

// One function for each row, with the arguments of its kernel: it throws Error or does nothing.
// Null where the kernel checks its views itself.
const KernelTable& kernel_rules();

}  // namespace needle
