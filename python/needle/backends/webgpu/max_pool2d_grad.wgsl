// The gradient of max_pool2d, for pool2d_grad.wgsl: it goes to the first maximum of each window,
// or to its first NaN. a: images.
fn takes(pixel: vec4<i32>, result: vec4<i32>) -> bool {
  let part = window(result);
  var best = 0.0;
  var place = vec2<i32>(-1);
  for (var h = part.x; h < part.z; h++) {
    for (var w = part.y; w < part.w; w++) {
      let value = load(a[P[1].x + offset(vec4<i32>(result.x, h, w, result.w), P[2])]);
      if (place.x < 0 || value > best || (math_is_nan(value) && !math_is_nan(best))) {
        best = value;
        place = vec2<i32>(h, w);
      }
    }
  }
  return all(place == pixel.yz);
}

fn finish(sum: f32) -> f32 { return sum; }
