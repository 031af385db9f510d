// A pool runs one thread per result, which combines the elements of a window. Each pool defines
// start, combine and finish.

fn run(i: i32) {
  let to = place_of(i, P[5].z, P[5].w);
  let part = window(to);
  var total = start();
  for (var h = part.x; h < part.z; h++) {
    for (var w = part.y; w < part.w; w++) {
      total = combine(load(a[P[1].x + offset(vec4<i32>(to.x, h, w, to.w), P[2])]), total);
    }
  }
  out[P[1].y + offset(to, P[3])] = store(finish(total));
}
