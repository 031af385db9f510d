// conv2d_weight_grad as a matrix product: rows are the window (KH, KW, C), k is the result's
// pixels, split into pieces, and columns are the output channels of a group. a: images, b: gradient
// of the result. Piece i writes its partial gradient at offset i * P[9].x; reduce adds the pieces.

var<private> piece: i32;

fn prepare(z: i32) {
  group = z / P[0].w;
  piece = z % P[0].w;
}

fn left_at(row: i32, k: i32) -> T {
  let i = piece * P[0].y + k;
  if (i >= P[9].y) { return T(0); }
  return image_at(pixel(i, P[5].z, P[5].w), pixel(row, P[6].y, P[6].z));
}

fn right_at(k: i32, column: i32) -> T {
  let i = piece * P[0].y + k;
  if (i >= P[9].y) { return T(0); }
  let source = vec4<i32>(pixel(i, P[5].z, P[5].w), group * P[6].w + column);
  return load(b[P[1].z + dot4(source, P[3])]);
}

fn write(row: i32, column: i32, value: T) {
  let tap = vec4<i32>(pixel(row, P[6].y, P[6].z), group * P[6].w + column);
  out[P[1].y + piece * P[9].x + dot4(tap, P[4])] = store(value);
}
