// scatter is a gather: each element of out takes the last source row whose index is its own row. a:
// source.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let at = place_of(i);
  let row = row_of(i);
  for (var j = P[0].z - 1; j >= 0; j--) {
    if (index_of(j) == row) {
      out[at.x] = a[at.y + j * P[2].y];
      return;
    }
  }
}
