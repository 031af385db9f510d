#include "rows.h"

#include <algorithm>

#include "check.h"
#include "view_rules.h"

namespace needle {

View row_of(const View& v) {
  View row = v;
  row.ndim = v.ndim - 1;
  std::copy_n(v.shape + 1, row.ndim, row.shape);
  std::copy_n(v.strides + 1, row.ndim, row.strides);
  return row;
}

void check_rows(const char* op, const View& many, const View& table, const View& index) {
  NEEDLE_CHECK(many.ndim >= 1 && table.ndim >= 1 && index.ndim == 1,
               "gather/scatter: the arrays need a first axis and the index just one");
  check_dtype(op, index, DType::kInt64);
  check_same_dtype(op, many, table);
  check_same_shape(op, row_of(many), row_of(table));
  NEEDLE_CHECK(many.shape[0] == index.shape[0], "gather/scatter: one row an index is needed");
}

}  // namespace needle
