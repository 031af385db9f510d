// The windows of pools, shared by pool2d.wgsl and pool2d_grad.wgsl. a: images.
// P[1] = offsets of (x, y, x_grad), P[2], P[3], P[4] = their strides (N, H, W, C), where y is the
// result or its gradient, P[5] = (H, W, OH, OW), P[6] = (C, ...), P[7] = kernel and stride, P[8] =
// padding. A place is (image, row, column, channel).

fn place_of(i: i32, height: i32, width: i32) -> vec4<i32> {
  let pixel = i / P[6].x;
  return vec4<i32>(pixel / width / height, (pixel / width) % height, pixel % width, i % P[6].x);
}

fn offset(place: vec4<i32>, strides: vec4<i32>) -> i32 {
  let parts = place * strides;
  return parts.x + parts.y + parts.z + parts.w;
}

// Returns the window of a result, clipped to the image: (first row, first column, end row, end
// column).
fn window(result: vec4<i32>) -> vec4<i32> {
  let first = result.yz * P[7].zw - P[8].xy;
  return vec4<i32>(max(first, vec2<i32>(0)), min(first + P[7].xy, P[5].xy));
}
