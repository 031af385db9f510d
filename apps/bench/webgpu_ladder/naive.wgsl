// Step 1: one thread for each result.

@compute @workgroup_size(SIDE, SIDE)
fn main(@builtin(global_invocation_id) thread: vec3<u32>) {
  let row = thread.y;
  let column = thread.x;
  /// BEGIN SOLUTION [wgsl-naive]
  if (row >= size.rows || column >= size.columns) { return; }
  var sum = 0.0;
  for (var k = 0u; k < size.depth; k++) { sum += a_at(row, k) * b_at(k, column); }
  put(row, column, sum);
  /// END SOLUTION
}
