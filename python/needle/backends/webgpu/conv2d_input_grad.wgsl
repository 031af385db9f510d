// conv2d_input_grad as a matrix product: rows are the images' pixels, k is (KH, KW, O), and columns
// are the input channels of a group. a: gradient of the result, b: weight.

fn prepare(z: i32) { group = z; }

fn left_at(row: i32, k: i32) -> T {
  let to = pixel(row, P[5].x, P[5].y);
  let tap = pixel(k, P[6].y, P[6].w);
  let h = to.y + P[7].z - tap.x * P[8].x;
  let w = to.z + P[7].w - tap.y * P[8].y;
  if (h < 0 || w < 0 || h % P[7].x != 0 || w % P[7].y != 0) { return T(0); }
  let source = vec4<i32>(to.x, h / P[7].x, w / P[7].y, group * P[6].w + tap.z);
  if (source.y >= P[5].z || source.z >= P[5].w) { return T(0); }
  return load(a[P[1].z + dot4(source, P[3])]);
}

fn right_at(k: i32, column: i32) -> T {
  let tap = pixel(k, P[6].y, P[6].w);
  return load(b[P[1].y + dot4(vec4<i32>(tap.xy, column, group * P[6].w + tap.z), P[4])]);
}

fn write(row: i32, column: i32, value: T) {
  let to = vec4<i32>(pixel(row, P[5].x, P[5].y), group * P[6].z + column);
  out[P[1].x + dot4(to, P[2])] = store(value);
}
