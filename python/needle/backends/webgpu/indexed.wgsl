// Kernels with one thread per element of out, whose rows are selected by an index. b: index.
// P[0] = (elements of out, axes of a row, indices, workgroups per row), P[1] = offsets of (out, a,
// index), P[2] = strides along the first axis of (out, a, index), then for each axis of a row its
// size and its strides in out and a.
fn place_of(i: i32) -> vec2<i32> {
  var at = P[1].xy;
  var rest = i;
  for (var axis = P[0].y - 1; axis >= 0; axis--) {
    let size = P[3 + axis].x;
    at += (rest % size) * P[3 + axis].yz;
    rest = rest / size;
  }
  return at + vec2<i32>(rest * P[2].x, 0);
}

fn row_of(i: i32) -> i32 {
  var rest = i;
  for (var axis = P[0].y - 1; axis >= 0; axis--) { rest = rest / P[3 + axis].x; }
  return rest;
}

fn index_of(j: i32) -> i32 { return bitcast<i32>(b[P[1].z + j * P[2].z]); }
