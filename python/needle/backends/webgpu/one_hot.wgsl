// one_hot runs one thread per element of out. a: index.
// P[0] = (elements, columns, offset of out, workgroups per row), P[1] = (offset of a, stride of a,
// strides of out along rows and columns).
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let row = i / P[0].y;
  let column = i % P[0].y;
  let hit = bitcast<i32>(a[P[1].x + row * P[1].y]) == column;
  out[P[0].z + row * P[1].z + column * P[1].w] = store(select(T(0), T(1), hit));
}
