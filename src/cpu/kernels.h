// Declares every row of the kernel table in the namespace of the instruction set that this
// translation unit is compiled for (-DNEEDLE_ISA=baseline|avx2|avx512|neon). Each family's file
// defines its rows with exactly these signatures; table.cc collects them. Nothing in these files
// may have weak linkage: use anonymous namespaces, static functions, Scratch instead of std::vector
// (tests/test_native_build.py checks the objects).
#pragma once

#include "prepared_conv2d.h"

namespace needle::cpu::NEEDLE_ISA {

#define NEEDLE_ROW(name, arguments) void name arguments;
NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW

extern const KernelTable table;
extern const PreparedConv2d prepared_conv2d;  // in conv2d.cc

}  // namespace needle::cpu::NEEDLE_ISA
