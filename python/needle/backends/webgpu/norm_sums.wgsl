// The sums in the gradients of batch_norm and layer_norm: of g, and of g times the normalised
// input. g is the gradient a, times the weight if flag 1 is set. out: both sums, one array after
// the other, b: input, c: mean, d: variance, e: weight.

fn term(at: Places, shift: f32) -> vec2<f32> {
  var g = load(a[at.near.z]);
  if ((P[3].z & 1) != 0) { g *= load(e[at.far.z]); }
  let deviation = sqrt(load(d[at.far.y]) + eps());
  return vec2<f32>(g, g * ((load(b[at.near.w]) - load(c[at.far.x])) / deviation));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let lane = lane_of(group, index);
  let sums = sum_of_lanes(lane, sum_of_elements(lane, 0.0));
  if (lane.number == 0 && lane.result < P[0].x) {
    let at = result_places(lane.result).near.y;
    out[at] = store(sums.x);
    out[at + P[0].x] = store(sums.y);
  }
}
