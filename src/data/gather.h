// Gathers rows of an array of any element type by index: a batch of samples in memory.
#pragma once

#include <cstdint>
#include <span>

#include "core/view.h"

namespace needle::data {

// Copies row indices[i] of source to row i of out, which has as many rows as there are indices;
// every index must be a row of the source. Both have one dtype, of which only the size counts, and
// rows of one shape; elements need not be aligned. The rows are distributed over the threads of the
// pool.
void gather_rows(const View& source, std::span<const std::int64_t> indices, const View& out);

}  // namespace needle::data
