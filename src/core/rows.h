// Checks of gather and scatter, which select rows of arrays (all axes but the first) by an index.
#pragma once

#include "view.h"

namespace needle {

View row_of(const View& v);  // the first

// Throws Error unless `many` has one row per entry of the index and `table` has rows of the same
// shape. The entries are not checked, because they may be on a device.
void check_rows(const char* op, const View& many, const View& table, const View& index);

}  // namespace needle
