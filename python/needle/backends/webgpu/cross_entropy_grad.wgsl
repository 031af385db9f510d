// cross_entropy_grad computes the gradient of a row of logits. c: gradient of the loss.
fn run(i: i32) {
  let shift = largest(i);
  let total = total_of(i, shift);
  let label = bitcast<i32>(b[P[1].y + i * P[2].y]);
  let grad = load(c[P[1].w + i * P[2].w]);
  for (var j = 0; j < P[0].z; j++) {
    let wanted = load(u32(P[3].w)) + select(0.0, load(u32(P[3].z)), j == label);
    let value = grad * (math_exp(logit(i, j) - shift) / total - wanted);
    out[P[1].z + i * P[2].z + j * P[3].y] = store(value);
  }
}
