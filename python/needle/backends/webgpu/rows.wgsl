// Kernels with one thread per row of a along an axis.
// P[0] = (rows, outer axes, elements of a row, workgroups per row), P[1] = (offset of a, of out,
// stride of a, of out along the row), then for each outer axis its size and its strides in a and
// out.
fn place_of(i: i32) -> vec2<i32> {
  var at = P[1].xy;
  var rest = i;
  for (var axis = P[0].y - 1; axis >= 0; axis--) {
    let size = P[2 + axis].x;
    at += (rest % size) * P[2 + axis].yz;
    rest = rest / size;
  }
  return at;
}
