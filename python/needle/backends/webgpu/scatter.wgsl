// scatter is a gather: each element of out takes the last source row whose index is its own row. a:
// source.
fn run(i: i32) {
  let at = place_of(i);
  let row = row_of(i);
  for (var j = P[0].z - 1; j >= 0; j--) {
    if (index_of(j) == row) {
      out[at.x] = a[at.y + j * P[2].y];
      return;
    }
  }
}
