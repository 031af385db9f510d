// Computes two sums per result. P[3].x lanes (threads) of a workgroup share the work of a result.

var<workgroup> partial: array<vec2<f32>, 256>;

struct Lane { result: i32, number: i32, first: i32 }  // first: the result's first index in partial

fn lane_of(group: vec3<u32>, index: u32) -> Lane {
  let thread = i32(index);
  let lanes = P[3].x;
  let together = 256 / lanes;
  let across = P[3].y == 1;
  let number = select(thread % lanes, thread / together, across);
  let result = select(thread / lanes, thread % together, across);
  let first = i32(group.y * u32(P[0].w) + group.x) * together;
  return Lane(first + result, number, result * lanes);
}

// Adds the sums of a result's lanes, in an order that depends on their number alone.
fn sum_of_lanes(lane: Lane, value: vec2<f32>) -> vec2<f32> {
  workgroupBarrier();
  partial[lane.first + lane.number] = value;
  for (var half = P[3].x / 2; half > 0; half /= 2) {
    workgroupBarrier();
    if (lane.number < half) {
      let here = lane.first + lane.number;
      partial[here] += partial[here + half];
    }
  }
  workgroupBarrier();
  return partial[lane.first];
}

// Returns the sum of those elements of a result that this lane adds. Blocks of 32 keep it accurate.
fn sum_of_elements(lane: Lane, shift: f32) -> vec2<f32> {
  var total = vec2<f32>(0.0, 0.0);
  if (lane.result >= P[0].x) { return total; }
  let start = result_places(lane.result);
  var block = vec2<f32>(0.0, 0.0);
  var filled = 0;
  for (var j = lane.number; j < P[1].x; j += P[3].x) {
    block += term(moved(start, j, P[0].y, P[0].z), shift);
    filled++;
    if (filled == 32) {
      total += block;
      block = vec2<f32>(0.0, 0.0);
      filled = 0;
    }
  }
  return total + block;
}
