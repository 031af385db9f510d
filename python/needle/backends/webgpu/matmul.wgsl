// The kernel of matmul: a workgroup computes a tile of 64 x 64 results, each of its 16 x 16 threads
// 4 x 4 of them in registers. Slices of 16 columns of a and rows of b go through workgroup memory.
// The backend puts the dtype's functions in front.

@group(0) @binding(0) var<storage, read> P: array<vec4<i32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> a: array<u32>;
@group(0) @binding(3) var<storage, read_write> b: array<u32>;

var<workgroup> left: array<array<T, 65>, 16>;  // [k][row]
var<workgroup> right: array<array<T, 65>, 16>;  // [k][column]

// P[0] = (m, k, n, batch axes), P[1] = offsets of (out, a, b) and the first batch, P[2] = strides of
// rows, P[3] = strides of columns, then for each batch axis its size and its strides.
@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
  var at = P[1].xyz;
  var rest = i32(group.z) + P[1].w;
  for (var axis = P[0].w - 1; axis >= 0; axis--) {
    let size = P[4 + axis].x;
    at += (rest % size) * P[4 + axis].yzw;
    rest = rest / size;
  }
  let m = P[0].x;
  let k = P[0].y;
  let n = P[0].z;
  let row = i32(group.y) * 64;
  let column = i32(group.x) * 64;
  let x = i32(local.x);
  let y = i32(local.y);
  let thread = y * 16 + x;
  var sums: array<array<T, 4>, 4>;
  for (var first = 0; first < k; first += 16) {
    for (var piece = 0; piece < 4; piece++) {
      // Neighbouring threads read along the axis that is compact in memory.
      let place = piece * 256 + thread;
      var wide = place / 16;
      var deep = place % 16;
      if (P[3].y != 1) { wide = place % 64; deep = place / 64; }
      var value = T(0);
      if (row + wide < m && first + deep < k) {
        value = load(a[at.y + (row + wide) * P[2].y + (first + deep) * P[3].y]);
      }
      left[deep][wide] = value;
      wide = place % 64;
      deep = place / 64;
      if (P[3].z != 1) { wide = place / 16; deep = place % 16; }
      value = T(0);
      if (column + wide < n && first + deep < k) {
        value = load(b[at.z + (first + deep) * P[2].z + (column + wide) * P[3].z]);
      }
      right[deep][wide] = value;
    }
    workgroupBarrier();
    for (var deep = 0; deep < 16; deep++) {
      var columns: array<T, 4>;
      for (var j = 0; j < 4; j++) { columns[j] = right[deep][x + 16 * j]; }
      for (var i = 0; i < 4; i++) {
        let factor = left[deep][y + 16 * i];
        for (var j = 0; j < 4; j++) { sums[i][j] += factor * columns[j]; }
      }
    }
    workgroupBarrier();
  }
  for (var i = 0; i < 4; i++) {
    for (var j = 0; j < 4; j++) {
      let r = row + y + 16 * i;
      let s = column + x + 16 * j;
      if (r < m && s < n) { out[at.x + r * P[2].x + s * P[3].x] = store(sums[i][j]); }
    }
  }
}
