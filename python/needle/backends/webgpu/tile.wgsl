// A tiled matrix product. A workgroup computes a tile of 64 x 16 * ACROSS results, and each of its
// 16 x 16 threads keeps 4 x ACROSS of them in registers. ACROSS is 4, or 1 for at most 16 columns.
// Slices of 16 columns of the left matrix and 16 rows of the right one are staged in workgroup
// memory. The matrices of a convolution are implicit: matmul.wgsl and conv2d*.wgsl have the
// functions that read and write elements.

var<workgroup> left: array<array<T, 65>, 16>;  // [k][row]
var<workgroup> right: array<array<T, 65>, 16>;  // [k][column]

// P[0] = (rows, k, columns, ...)
@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
  prepare(i32(group.z));
  let m = P[0].x;
  let k = P[0].y;
  let n = P[0].z;
  let row = i32(group.y) * 64;
  let column = i32(group.x) * 16 * ACROSS;
  let x = i32(local.x);
  let y = i32(local.y);
  let thread = y * 16 + x;
  var sums: array<array<T, ACROSS>, 4>;
  for (var first = 0; first < k; first += 16) {
    for (var piece = 0; piece < 4; piece++) {
      // Adjacent threads read along the axis that is contiguous in memory.
      let place = piece * 256 + thread;
      var wide = place / 16;
      var deep = place % 16;
      if (!left_along_k()) { wide = place % 64; deep = place / 64; }
      var value = T(0);
      if (row + wide < m && first + deep < k) { value = left_at(row + wide, first + deep); }
      left[deep][wide] = value;
    }
    for (var piece = 0; piece < ACROSS; piece++) {
      let place = piece * 256 + thread;
      var wide = place % (16 * ACROSS);
      var deep = place / (16 * ACROSS);
      if (right_along_k()) { wide = place / 16; deep = place % 16; }
      var value = T(0);
      if (column + wide < n && first + deep < k) { value = right_at(first + deep, column + wide); }
      right[deep][wide] = value;
    }
    workgroupBarrier();
    for (var deep = 0; deep < 16; deep++) {
      var columns: array<T, ACROSS>;
      for (var j = 0; j < ACROSS; j++) { columns[j] = right[deep][x + 16 * j]; }
      for (var i = 0; i < 4; i++) {
        let factor = left[deep][y + 16 * i];
        for (var j = 0; j < ACROSS; j++) { sums[i][j] += factor * columns[j]; }
      }
    }
    workgroupBarrier();
  }
  for (var i = 0; i < 4; i++) {
    for (var j = 0; j < ACROSS; j++) {
      let r = row + y + 16 * i;
      let s = column + x + 16 * j;
      if (r < m && s < n) { write(r, s, sums[i][j]); }
    }
  }
}
