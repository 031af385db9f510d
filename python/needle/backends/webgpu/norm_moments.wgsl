// The mean and the biased variance of a, for batch_norm and layer_norm. out: mean, b: variance.
// The second pass sums deviations from the mean of the first pass, and corrects the mean by them.

fn term(at: Places, shift: f32) -> vec2<f32> {
  let deviation = load(a[at.near.z]) - shift;
  return vec2<f32>(deviation, deviation * deviation);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let lane = lane_of(group, index);
  let count = f32(P[1].x);
  let mean = sum_of_lanes(lane, sum_of_elements(lane, 0.0)).x / count;
  let rest = sum_of_lanes(lane, sum_of_elements(lane, mean)) / count;
  if (lane.number == 0 && lane.result < P[0].x) {
    let at = result_places(lane.result);
    out[at.near.y] = store(mean + rest.x);
    b[at.near.w] = store(rest.y - rest.x * rest.x);
  }
}
