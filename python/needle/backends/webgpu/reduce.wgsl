// The kernel of reduce. A workgroup of 256 threads computes several results. The number of lanes
// (threads) per result depends on its number of elements. The lanes' values are combined as a tree,
// in an order that depends on the shape alone. Blocks of 32 elements keep float32 sums accurate.
//
// The backend prepends the accumulator of a lane: its type Part, part_of(word of an element) ->
// Part, combine(x, y: Part) -> Part, and word_of(Part) -> u32, which returns the result.

@group(0) @binding(0) var<storage, read> P: array<vec4<i32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> a: array<u32>;

var<workgroup> partial: array<Part, 256>;

// P[0] = (results, kept axes, lanes of a result, workgroups per row), P[1] = (offset of out, of a,
// word of the identity, 1 if adjacent threads work on adjacent results), P[2] = (elements of a
// result, reduced axes), then for each axis, kept ones first, its size and strides of (out, a).
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let thread = i32(index);
  let lanes = P[0].z;
  let together = 256 / lanes;
  let across = P[1].w == 1;
  let lane = select(thread % lanes, thread / together, across);
  let result = select(thread / lanes, thread % together, across);
  let i = i32(group.y * u32(P[0].w) + group.x) * together + result;
  let identity = part_of(u32(P[1].z));
  var total = identity;
  var at = vec2<i32>(P[1].x, P[1].y);
  if (i < P[0].x) {
    var rest = i;
    for (var axis = P[0].y - 1; axis >= 0; axis--) {
      let size = P[3 + axis].x;
      at += (rest % size) * P[3 + axis].yz;
      rest = rest / size;
    }
    var block = identity;
    var filled = 0;
    for (var j = lane; j < P[2].x; j += lanes) {
      var place = at.y;
      var inner = j;
      for (var axis = P[0].y + P[2].y - 1; axis >= P[0].y; axis--) {
        let size = P[3 + axis].x;
        place += (inner % size) * P[3 + axis].z;
        inner = inner / size;
      }
      block = combine(block, part_of(a[place]));
      filled++;
      if (filled == 32) {
        total = combine(total, block);
        block = identity;
        filled = 0;
      }
    }
    total = combine(total, block);
  }
  partial[result * lanes + lane] = total;
  for (var half = lanes / 2; half > 0; half /= 2) {
    workgroupBarrier();
    if (lane < half) {
      let here = result * lanes + lane;
      partial[here] = combine(partial[here], partial[here + half]);
    }
  }
  if (lane == 0 && i < P[0].x) { out[at.x] = word_of(partial[result * lanes]); }
}
