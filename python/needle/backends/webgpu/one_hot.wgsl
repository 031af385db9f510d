// one_hot runs one thread per element of out. a: index.
// P[0] = (elements, columns, offset of out, workgroups per row), P[1] = (offset of a, stride of a,
// strides of out along rows and columns).
fn run(i: i32) {
  let row = i / P[0].y;
  let column = i % P[0].y;
  let hit = bitcast<i32>(a[P[1].x + row * P[1].y]) == column;
  out[P[0].z + row * P[1].z + column * P[1].w] = store(select(T(0), T(1), hit));
}
