// Kernels with one thread per row of logits. a: logits, b: labels.
// P[0] = (N, ..., C, workgroups per row), P[1] = offsets of (logits, labels, out, grad), P[2] =
// strides along N, P[3] = (stride of logits along C, of out along C, 1 - smoothing, smoothing / C
// as words).
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
