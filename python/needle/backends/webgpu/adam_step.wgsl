// The rule of adam_step: ``stepped`` returns one element's new parameter and moments. step_all.wgsl
// calls it.

// P[1] = words of (lr / (1 - beta1^step), beta1, beta2, eps), P[2] = words of (weight decay,
// 1 - lr * weight decay, 1 / (1 - beta2^step), 1 - beta1), P[3] = (word of 1 - beta2, 1 if weight
// decay is decoupled else 0, ...).
fn stepped(param: f32, grad: f32, first: f32, second: f32) -> vec3<f32> {
  let setting = bitcast<vec4<f32>>(P[1]);
  let more = bitcast<vec4<f32>>(P[2]);
  var p = param;
  var g = grad;
  if (P[3].y == 1) { p *= more.y; } else { g += more.x * p; }
  let m = setting.y * first + more.w * g;
  let v = setting.z * second + bitcast<f32>(P[3].x) * g * g;
  return vec3(p - setting.x * m / (sqrt(v * more.z) + setting.w), m, v);
}
