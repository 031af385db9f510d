// The entry point of kernels with one thread per result, which call ``run`` with its number.
// P[0] = (threads, ..., workgroups per row)
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = i32((group.y * u32(P[0].w) + group.x) * 256u + local);
  if (i < P[0].x) { run(i); }
}
