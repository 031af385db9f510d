// The gradient of a pool runs one thread per pixel, which gathers the gradients of its windows. b:
// gradient of the result. Each pool defines ``takes``, which tells whether a pixel gets the
// gradient of a window, and finish.

fn run(i: i32) {
  let to = place_of(i, P[5].x, P[5].y);
  let first = max(vec2<i32>(0), (to.yz + P[8].xy - P[7].xy + P[7].zw) / P[7].zw);
  let end = min((to.yz + P[8].xy) / P[7].zw + 1, P[5].zw);
  var sum = 0.0;
  for (var row = first.x; row < end.x; row++) {
    for (var column = first.y; column < end.y; column++) {
      let result = vec4<i32>(to.x, row, column, to.w);
      if (takes(to, result)) { sum += load(b[P[1].y + offset(result, P[3])]); }
    }
  }
  out[P[1].z + offset(to, P[4])] = store(finish(sum));
}
