// What the views of one call must be to each other, for every row of the kernel table that walks
// more than elements: kernels rely on it and would else read or write outside their buffers. The
// bindings call a row's rule before its kernel, whichever backend or instruction set that is.
#pragma once

#include "kernel_table.h"

namespace needle {

// Rows with the arguments of their kernels that throw Error or do nothing; null where the kernel
// states its rules itself.
const KernelTable& kernel_rules();

}  // namespace needle
