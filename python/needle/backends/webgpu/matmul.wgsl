// The element accessors of matmul, whose product tile.wgsl computes.

@group(0) @binding(0) var<storage, read> P: array<vec4<i32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> a: array<u32>;
@group(0) @binding(3) var<storage, read_write> b: array<u32>;

// P[0] = (m, k, n, batch axes), P[1] = offsets of (out, a, b) and the first batch, P[2] = strides of
// rows, P[3] = strides of columns, then for each batch axis its size and its strides.
var<private> at: vec3<i32>;

fn prepare(z: i32) {
  at = P[1].xyz;
  var rest = z + P[1].w;
  for (var axis = P[0].w - 1; axis >= 0; axis--) {
    let size = P[4 + axis].x;
    at += (rest % size) * P[4 + axis].yzw;
    rest = rest / size;
  }
}

fn left_along_k() -> bool { return P[3].y == 1; }
fn right_along_k() -> bool { return P[3].z != 1; }
fn left_at(row: i32, k: i32) -> T { return load(a[at.y + row * P[2].y + k * P[3].y]); }
fn right_at(k: i32, column: i32) -> T { return load(b[at.z + k * P[2].z + column * P[3].z]); }
fn write(row: i32, column: i32, value: T) {
  out[at.x + row * P[2].x + column * P[3].x] = store(value);
}
