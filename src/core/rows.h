// Rows of arrays (all axes but the first) that an index picks: what gather and scatter ask first.
#pragma once

#include "view.h"

namespace needle {

View row_of(const View& v);  // the first

// `many` has one row an entry of the index, `table` is what the index points into. Throws Error.
// The entries themselves are not looked at: they may be on a device.
void check_rows(const char* op, const View& many, const View& table, const View& index);

}  // namespace needle
