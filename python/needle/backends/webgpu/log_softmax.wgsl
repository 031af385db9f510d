// log_softmax: one thread for each row of a.
// P[0] = (rows, outer axes, elements of a row, groups in a row), P[1] = (offset of a, of out, stride
// of a, of out along the row), then for each outer axis its size and its strides in a and out.
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

fn maximum_of(at: i32) -> T {
  var best = -math_infinity();
  for (var j = 0; j < P[0].z; j++) { best = math_maximum(load(a[at + j * P[1].z]), best); }
  return best;
}

fn sum_of_exp(at: i32, shift: T) -> T {
  var total = 0.0;
  for (var j = 0; j < P[0].z; j++) { total += math_exp(load(a[at + j * P[1].z]) - shift); }
  return total;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let at = place_of(i);
  let shift = maximum_of(at.x);
  let logarithm = math_log(sum_of_exp(at.x, shift));
  for (var j = 0; j < P[0].z; j++) {
    out[at.y + j * P[1].w] = store((load(a[at.x + j * P[1].z]) - shift) - logarithm);
  }
}
