// gather copies a row of a for each index. a: rows.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let at = place_of(i);
  out[at.x] = a[at.y + index_of(row_of(i)) * P[2].y];
}
