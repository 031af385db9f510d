// The rule of sgd_step: ``stepped`` returns one element's new parameter and velocity. step_all.wgsl
// calls it.

// P[1] = words of (lr, momentum, 1 - dampening, weight decay), P[2] = (1 if there is a velocity, 1
// for Nesterov, ...).
fn stepped(p: f32, grad: f32, velocity: f32, unused: f32) -> vec3<f32> {
  let setting = bitcast<vec4<f32>>(P[1]);
  var g = grad + setting.w * p;
  if (P[2].x == 0) { return vec3(p - setting.x * g, 0.0, 0.0); }
  let v = setting.y * velocity + setting.z * g;
  g = select(v, g + setting.y * v, P[2].y == 1);
  return vec3(p - setting.x * g, v, 0.0);
}
