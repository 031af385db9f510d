// log_softmax normalises a row of a.
fn run(i: i32) {
  let at = place_of(i);
  let shift = maximum_of(at.x);
  let logarithm = math_log(sum_of_exp(at.x, shift));
  for (var j = 0; j < P[0].z; j++) {
    out[at.y + j * P[1].w] = store((load(a[at.x + j * P[1].z]) - shift) - logarithm);
  }
}
