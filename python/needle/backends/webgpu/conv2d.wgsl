// conv2d as a matrix product: rows are the result's pixels, k is the window (KH, KW, C), and
// columns are the output channels of a group. a: images, b: weight.

fn prepare(z: i32) { group = z; }

fn left_at(row: i32, k: i32) -> T {
  return image_at(pixel(row, P[5].z, P[5].w), pixel(k, P[6].y, P[6].z));
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
