// adam_step of one parameter. a: parameter, b: gradient, c and d: moments.

// P[0] = (elements, decoupled 1 or 0, offset of d, groups in a row), P[1] = offsets of (out, a, b, c),
// P[2] = words of (lr / (1 - beta1^step), beta1, beta2, eps), P[3] = words of (weight decay,
// 1 - lr * weight decay, 1 / (1 - beta2^step), ...).
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let setting = bitcast<vec4<f32>>(P[2]);
  let more = bitcast<vec4<f32>>(P[3]);
  var p = load(a[P[1].y + i]);
  var g = load(b[P[1].z + i]);
  if (P[0].y == 1) { p *= more.y; } else { g += more.x * p; }
  let m = setting.y * load(c[P[1].w + i]) + more.w * g;
  let v = setting.z * load(d[P[0].z + i]) + bitcast<f32>(P[4].x) * g * g;
  c[P[1].w + i] = store(m);
  d[P[0].z + i] = store(v);
  out[P[1].x + i] = store(p - setting.x * m / (sqrt(v * more.z) + setting.w));
}
