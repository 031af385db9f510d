// The kernels in use: those of the best instruction set that this machine supports, until another
// is selected.
#pragma once

#include <string>
#include <vector>

#include "prepared_conv2d.h"

namespace needle::cpu {

// Returns the names of the compiled instruction sets that this machine supports, worst first.
std::vector<std::string> available_isas();
const KernelTable& selected_table();
const PreparedConv2d& selected_prepared_conv2d();
// Throws an Error that names the available ones if `name` is unknown or not supported here.
void select_isa(const std::string& name);

}  // namespace needle::cpu
