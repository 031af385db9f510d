// conv2d as a matrix product: rows are the result's pixels, k is the window (KH, KW, C), and
// columns are the output channels of a group. a: images, b: weight.

fn prepare(z: i32) { group = z; }

fn left_at(row: i32, k: i32) -> T {
  let to = pixel(row, P[5].z, P[5].w);
  let tap = pixel(k, P[6].y, P[6].z);
  let h = to.y * P[7].x - P[7].z + tap.x * P[8].x;
  let w = to.z * P[7].y - P[7].w + tap.y * P[8].y;
  if (h < 0 || w < 0 || h >= P[5].x || w >= P[5].y) { return T(0); }
  return load(a[P[1].x + dot4(vec4<i32>(to.x, h, w, group * P[6].z + tap.z), P[2])]);
}

fn right_at(k: i32, column: i32) -> T {
  let tap = vec4<i32>(pixel(k, P[6].y, P[6].z), group * P[6].w + column);
  return load(b[P[1].y + dot4(tap, P[4])]);
}

fn write(row: i32, column: i32, value: T) {
  let channel = group * P[6].w + column;
  var result = value;
  if ((P[8].w & 1) != 0) { result += load(bias[P[1].w + channel * P[8].z]); }
  if ((P[8].w & 2) != 0) { result = math_maximum(result, 0.0); }
  out[P[1].z + dot4(vec4<i32>(pixel(row, P[5].z, P[5].w), channel), P[3])] = store(result);
}
