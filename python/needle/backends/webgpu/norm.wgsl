// batch_norm and layer_norm compute (a - mean) / sqrt(variance + eps) * weight + bias, then add the
// residual and apply relu. b: weight, c: bias, d: mean, e: variance, f: residual. Flags: 1:
// residual, 2: relu.

fn run(i: i32) {
  let at = result_places(i);
  let deviation = sqrt(load(e[at.far.z]) + eps());
  var y = (load(a[at.near.z]) - load(d[at.far.y])) / deviation;
  y = y * load(b[at.near.w]) + load(c[at.far.x]);
  if ((P[3].z & 1) != 0) { y += load(f[at.far.w]); }
  if ((P[3].z & 2) != 0) { y = math_maximum(y, 0.0); }
  out[at.near.y] = store(y);
}
