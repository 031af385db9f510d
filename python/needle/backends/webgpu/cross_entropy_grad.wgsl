// cross_entropy_grad computes the gradient of a row of logits. c: gradient of the loss.
fn run(i: i32) {
  let at = P[1].x + i * P[2].x;
  let shift = maximum_of(at);
  let total = sum_of_exp(at, shift);
  let label = bitcast<i32>(b[P[1].y + i * P[2].y]);
  let grad = load(c[P[3].y + i * P[2].w]);
  for (var j = 0; j < P[0].z; j++) {
    let wanted = load(u32(P[3].w)) + select(0.0, load(u32(P[3].z)), j == label);
    let value = grad * (math_exp(logit(i, j) - shift) / total - wanted);
    out[P[3].x + i * P[2].z + j * P[1].w] = store(value);
  }
}
