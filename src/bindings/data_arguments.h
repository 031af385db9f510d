// Checks the arguments of the functions in the submodule `data`, and raises needle's errors.
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

// Returns a copy of a one-dimensional int64 array.
Integers integers(const std::string& name, const pybind11::handle& value);

void check_writeable(const std::string& op, const pybind11::array& out);

// Throws Error if rows of `out` overlap, because several threads write them.
void check_rows_apart(const std::string& op, const pybind11::array& out, std::int64_t row_bytes);

// Returns true if each row (each index along the first axis) is C-contiguous.
bool is_compact_row(const pybind11::array& array);

std::int64_t row_bytes(const pybind11::array& array);

}  // namespace needle::bindings
