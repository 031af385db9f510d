// Gathers rows of an array by index, which makes a batch of samples. Elements may have any type.
#pragma once

#include <cstdint>
#include <span>

#include "core/view.h"

namespace needle::data {

// Copies row indices[i] of `source` to row i of `out`. `out` must have one row per index, and every
// index must be a row of `source`. Both must have the same dtype, of which only the size matters,
// and rows of the same shape. Elements need not be aligned. The threads of the pool share the rows.
void gather_rows(const View& source, std::span<const std::int64_t> indices, const View& out);

}  // namespace needle::data
