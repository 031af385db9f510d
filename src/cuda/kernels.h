// Declares every row of the kernel table for CUDA. Each kernel file defines its rows with exactly
// these signatures; table.cu collects them. The rows follow the same rules as src/cpu's.
#pragma once

#include "core/kernel_table.h"

namespace needle::cuda {

#define NEEDLE_ROW(name, arguments) void name arguments;
NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW

// conv2d_moments also writes the moments of its result. batch_norm_of_moments normalises with these
// moments instead of computing its own (moments.h).
void conv2d_moments(In x, In weight, Out out, const Geometry& geometry, const Epilogue& epilogue,
                    Out moments);
void batch_norm_of_moments(In x, In moments, In weight, In bias, Out out, Out mean, Out var,
                           double eps, const Epilogue& epilogue);

const KernelTable& table();

}  // namespace needle::cuda
