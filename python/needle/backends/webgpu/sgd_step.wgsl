// sgd_step of one parameter. a: parameter, b: gradient, c: velocity.

// P[0] = (elements, velocity 1 or 0, nesterov 1 or 0, groups in a row), P[1] = offsets of (out, a, b,
// c), P[2] = words of (lr, momentum, 1 - dampening, weight decay).
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let p = load(a[P[1].y + i]);
  let setting = bitcast<vec4<f32>>(P[2]);
  var g = load(b[P[1].z + i]) + setting.w * p;
  if (P[0].y == 1) {
    let v = setting.y * load(c[P[1].w + i]) + setting.z * g;
    c[P[1].w + i] = store(v);
    g = select(v, g + setting.y * v, P[0].z == 1);
  }
  out[P[1].x + i] = store(p - setting.x * g);
}
