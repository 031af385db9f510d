// Step 3: a thread keeps EACH x EACH results in registers, a workgroup computes WIDE x WIDE.

const WIDE = SIDE * EACH;

var<workgroup> piece_a: array<array<f32, WIDE>, SIDE>;  // [k][row]
var<workgroup> piece_b: array<array<f32, WIDE>, SIDE>;  // [k][column]

@compute @workgroup_size(SIDE, SIDE)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  // The first result of the workgroup, and the sums of this thread's results. Result (i, j) of the
  // thread is (local.y + SIDE * i, local.x + SIDE * j) of the workgroup.
  let row = group.y * WIDE;
  let column = group.x * WIDE;
  var sums: array<array<f32, EACH>, EACH>;
  /// BEGIN SOLUTION [wgsl-registers]
  for (var first = 0u; first < size.depth; first += SIDE) {
    let k = first + local.y;
    for (var i = 0u; i < EACH; i++) {
      let across = local.x + SIDE * i;
      var element_a = 0.0;
      var element_b = 0.0;
      if (k < size.depth && row + across < size.rows) { element_a = a_at(row + across, k); }
      if (k < size.depth && column + across < size.columns) { element_b = b_at(k, column + across); }
      piece_a[local.y][across] = element_a;
      piece_b[local.y][across] = element_b;
    }
    workgroupBarrier();
    for (var deep = 0u; deep < SIDE; deep++) {
      var factors: array<f32, EACH>;
      for (var j = 0u; j < EACH; j++) { factors[j] = piece_b[deep][local.x + SIDE * j]; }
      for (var i = 0u; i < EACH; i++) {
        let factor = piece_a[deep][local.y + SIDE * i];
        for (var j = 0u; j < EACH; j++) { sums[i][j] += factor * factors[j]; }
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i < EACH; i++) {
    for (var j = 0u; j < EACH; j++) {
      let r = row + local.y + SIDE * i;
      let c = column + local.x + SIDE * j;
      if (r < size.rows && c < size.columns) { put(r, c, sums[i][j]); }
    }
  }
  /// END SOLUTION
}
