// scatter_add is a gather: each element of out adds the source rows whose index is its own row, in
// order, since WGSL has no atomic floats. a: source.
fn run(i: i32) {
  let at = place_of(i);
  let row = row_of(i);
  var sum = load(out[at.x]);
  for (var j = 0; j < P[0].z; j++) {
    if (index_of(j) == row) { sum = math_add(sum, load(a[at.y + j * P[2].y])); }
  }
  out[at.x] = store(sum);
}
