// Rows of arrays (all axes but the first) that an index selects: the checks of gather and scatter.
#pragma once

#include "view.h"

namespace needle {

View row_of(const View& v);  // the first

// `many` has one row for each entry of the index; `table` has the rows that the index selects.
// Throws Error. The entries are not checked, because they may be on a device.
void check_rows(const char* op, const View& many, const View& table, const View& index);

}  // namespace needle
