// gather copies a row of a for each index. a: rows.
fn run(i: i32) {
  let at = place_of(i);
  out[at.x] = a[at.y + index_of(row_of(i)) * P[2].y];
}
