// The bindings of kernels with up to seven strided views, and an element's offset in each.

@group(0) @binding(0) var<storage, read> P: array<vec4<i32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> a: array<u32>;
@group(0) @binding(3) var<storage, read_write> b: array<u32>;
@group(0) @binding(4) var<storage, read_write> c: array<u32>;
@group(0) @binding(5) var<storage, read_write> d: array<u32>;
@group(0) @binding(6) var<storage, read_write> e: array<u32>;
@group(0) @binding(7) var<storage, read_write> f: array<u32>;

// P[0] = (results, outer axes, inner axes, workgroups per row), P[1] = (elements of a result,
// offsets of out, a and b), P[2] = offsets of c to f, P[3] = (lanes of a result, 1 if neighbouring
// threads work on neighbouring results, flags, word of eps), then for each axis, outer ones first,
// its size and the seven strides.
struct Places { near: vec4<i32>, far: vec4<i32> }  // near: (unused, out, a, b), far: (c, d, e, f)

// Adds the offsets of element i along `axes` axes, beginning with axis `first`.
fn moved(start: Places, i: i32, first: i32, axes: i32) -> Places {
  var at = start;
  var rest = i;
  for (var axis = first + axes - 1; axis >= first; axis--) {
    let size = P[4 + 2 * axis].x;
    at.near += (rest % size) * P[4 + 2 * axis];
    at.far += (rest % size) * P[5 + 2 * axis];
    rest = rest / size;
  }
  return at;
}

fn result_places(i: i32) -> Places { return moved(Places(P[1], P[2]), i, 0, P[0].y); }

fn eps() -> f32 { return bitcast<f32>(P[3].w); }
