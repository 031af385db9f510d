// Argument checks of the functions of the submodule `data`. They raise needle's errors.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/check.h"

namespace needle::bindings {

using Integers = std::vector<std::int64_t>;

// The shape as Python writes it.
std::string shape_of(const pybind11::array& array);

// Returns a Python integer modulo 2**64.
std::uint64_t masked(const char* name, const pybind11::handle& value);

// Returns a copy of an int64 array of one axis.
Integers integers(const std::string& name, const pybind11::handle& value);

void check_writeable(const std::string& op, const pybind11::array& out);

// Several threads write rows of out, so no two rows may overlap.
void check_rows_apart(const std::string& op, const pybind11::array& out, std::int64_t row_bytes);

// Returns true if each row, by the first axis, is C-contiguous.
bool is_compact_row(const pybind11::array& array);

std::int64_t row_bytes(const pybind11::array& array);

}  // namespace needle::bindings
