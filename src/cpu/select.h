// The kernels in use: those of the best instruction set that this machine runs, until another is
// selected.
#pragma once

#include <string>
#include <vector>

#include "prepared_conv2d.h"

namespace needle::cpu {

// Names of the compiled instruction sets that this machine runs, worst first.
std::vector<std::string> available_isas();
const KernelTable& selected_table();
const PreparedConv2d& selected_prepared_conv2d();
// Throws Error, naming the available ones, where `name` is unknown or does not run here.
void select_isa(const std::string& name);

}  // namespace needle::cpu
