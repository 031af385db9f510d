// Checks between the views of one call. Kernels call them first, so that an invalid combination of
// views is never accessed. (The bindings check each view against its buffer.)
#pragma once

#include "view.h"

namespace needle {

// Each throws an Error that names the operation and the shapes or dtypes.
void check_same_shape(const char* op, const View& a, const View& b);
void check_same_dtype(const char* op, const View& a, const View& b);
void check_dtype(const char* op, const View& a, DType expected);
void check_reduced_shape(const char* op, const View& a, const View& out);
// Checks the labels' values, which are in host memory.
void check_labels_in_range(const char* op, const View& labels, std::int64_t classes);

// Returns a row-major view at `data` with the shape and dtype of `like`.
View row_major(const View& like, void* data);

}  // namespace needle
