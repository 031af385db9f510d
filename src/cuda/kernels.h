// Declares every row of the kernel table for CUDA. A family file defines its rows with exactly
// these signatures; table.cu collects them. The rows state the same rules as src/cpu's.
#pragma once

#include "core/kernel_table.h"

namespace needle::cuda {

#define NEEDLE_ROW(name, arguments) void name arguments;
NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW

const KernelTable& table();

}  // namespace needle::cuda
