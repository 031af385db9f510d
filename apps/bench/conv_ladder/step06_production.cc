// Steps 06 and 07: the library's kernel, src/cpu/conv2d.cc, on one thread and on all. It adds to
// step 05: tiles of 4 x 4 outputs (36 products instead of 144) from points that keep the error
// small; transformations on vectors of channels; blocks of tiles that pass through all three steps
// while they are in cache; and threads over the blocks. For shapes where Winograd's method is
// slower it uses variants of step 04, chosen by their cost.
#include "cpu/select.h"
#include "step.h"

namespace {

needle::View array(const float* data, long a, long b, long c, long d) {
  needle::View view;
  view.data = const_cast<float*>(data);
  view.ndim = 4;
  const long sizes[4] = {a, b, c, d}, strides[4] = {b * c * d, c * d, d, 1};
  for (int axis = 0; axis < 4; ++axis) {
    view.shape[axis] = sizes[axis];
    view.strides[axis] = strides[axis];
  }
  return view;
}

}  // namespace

void ladder::production(const Convolution& v) {
  needle::cpu::selected_table().conv2d(
      array(v.x, v.n, v.h, v.w, v.c), array(v.weight, 3, 3, v.c, v.o),
      array(v.out, v.n, v.h, v.w, v.o), {{1, 1}, {1, 1}, {1, 1}, 1}, {});
}
