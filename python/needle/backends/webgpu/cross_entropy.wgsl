// cross_entropy computes the loss of a row.
fn run(i: i32) {
  let at = P[1].x + i * P[2].x;
  let shift = maximum_of(at);
  let logarithm = math_log(sum_of_exp(at, shift));
  let label = bitcast<i32>(b[P[1].y + i * P[2].y]);
  var loss = -(load(u32(P[3].z)) * ((logit(i, label) - shift) - logarithm));
  if (P[3].w != 0) {
    var sum = 0.0;
    for (var j = 0; j < P[0].z; j++) { sum += (logit(i, j) - shift) - logarithm; }
    loss -= load(u32(P[3].w)) * sum;
  }
  out[P[3].x + i * P[2].z] = store(loss);
}
