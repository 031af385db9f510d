// Steps 07 and 08: the library's kernel, src/cpu/matmul.cc, on one thread and on all. It adds to
// step 06: any strides and types; tiles with fewer rows and columns for the edges; a without
// packing where that is faster; several slices of b packed at a time, so that c stays in cache
// between them; and tasks for threads. Tasks are blocks of rows that depend on the shape alone, so
// that the result is the same to the last bit for any number of threads.
#include "cpu/select.h"
#include "step.h"

namespace {

needle::View matrix(const float* data, long rows, long columns) {
  needle::View view;
  view.data = const_cast<float*>(data);
  view.ndim = 2;
  view.shape[0] = rows;
  view.shape[1] = columns;
  view.strides[0] = columns;
  view.strides[1] = 1;
  return view;
}

}  // namespace

void ladder::production(const Product& x) {
  needle::cpu::selected_table().matmul(matrix(x.a, x.m, x.k), matrix(x.b, x.k, x.n),
                                       matrix(x.c, x.m, x.n));
}
