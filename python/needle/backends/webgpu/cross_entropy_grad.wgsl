// cross_entropy_grad: one thread for each row. a: logits, b: labels, c: gradient of the loss.
// P[0] = (N, ..., C, groups in a row), P[1] = offsets of (logits, labels, out, grad), P[2] = strides
// along N, P[3] = (stride of logits along C, of out along C, 1 - smoothing, smoothing / C as words).
fn logit(i: i32, j: i32) -> T { return load(a[P[1].x + i * P[2].x + j * P[3].x]); }

fn largest(i: i32) -> T {
  var best = -math_infinity();
  for (var j = 0; j < P[0].z; j++) { best = math_maximum(logit(i, j), best); }
  return best;
}

fn total_of(i: i32, shift: T) -> T {
  var total = 0.0;
  for (var j = 0; j < P[0].z; j++) { total += math_exp(logit(i, j) - shift); }
  return total;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
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
