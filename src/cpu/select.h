// The kernel table in use: the best that this machine runs, until another is selected.
#pragma once

#include <string>
#include <vector>

#include "core/kernel_table.h"

namespace needle::cpu {

// Names of the compiled instruction sets that this machine runs, worst first.
std::vector<std::string> available_isas();
const KernelTable& selected_table();
// Throws Error, naming the available ones, where `name` is unknown or does not run here.
void select_isa(const std::string& name);

}  // namespace needle::cpu
