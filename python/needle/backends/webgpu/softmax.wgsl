// softmax normalises a row of a.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let at = place_of(i);
  let shift = maximum_of(at.x);
  let total = sum_of_exp(at.x, shift);
  for (var j = 0; j < P[0].z; j++) {
    out[at.y + j * P[1].w] = store(math_exp(load(a[at.x + j * P[1].z]) - shift) / total);
  }
}
