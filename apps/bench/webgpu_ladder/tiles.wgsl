// Step 2: the threads of a workgroup share what they read, in tiles of SIDE x SIDE elements.

var<workgroup> tile_a: array<array<f32, SIDE>, SIDE>;  // [row][k]
var<workgroup> tile_b: array<array<f32, SIDE>, SIDE>;  // [k][column]

@compute @workgroup_size(SIDE, SIDE)
fn main(
  @builtin(global_invocation_id) thread: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
  let row = thread.y;
  let column = thread.x;
  /// BEGIN SOLUTION [wgsl-tiles]
  let inside = vec2<bool>(row < size.rows, column < size.columns);
  var sum = 0.0;
  for (var first = 0u; first < size.depth; first += SIDE) {
    let k = first + local.xy;  // of this thread's elements: k.x in the tile of a, k.y in that of b
    var element_a = 0.0;
    var element_b = 0.0;
    if (inside.x && k.x < size.depth) { element_a = a_at(row, k.x); }
    if (inside.y && k.y < size.depth) { element_b = b_at(k.y, column); }
    tile_a[local.y][local.x] = element_a;
    tile_b[local.y][local.x] = element_b;
    workgroupBarrier();
    for (var i = 0u; i < SIDE; i++) { sum += tile_a[local.y][i] * tile_b[i][local.x]; }
    workgroupBarrier();
  }
  if (all(inside)) { put(row, column, sum); }
  /// END SOLUTION
}
