// max_pool2d_grad runs one thread per pixel, which gathers the gradients of the windows whose first
// maximum it is. a: images, b: gradient of the result.
// P[1] = offsets of (x, y, x_grad), P[2], P[3], P[4] = their strides (N, H, W, C), where y is the
// result or its gradient, P[5] = (H, W, OH, OW), P[6] = (C, ...), P[7] = kernel and stride, P[8] =
// padding.

// Returns the position h * W + w of a window's first maximum (or NaN).
fn first_maximum(image: i32, row: i32, column: i32, channel: i32) -> i32 {
  var best = 0.0;
  var place = -1;
  for (var y = 0; y < P[7].x; y++) {
    let h = row * P[7].z - P[8].x + y;
    for (var x = 0; x < P[7].y; x++) {
      let w = column * P[7].w - P[8].y + x;
      if (h >= 0 && w >= 0 && h < P[5].x && w < P[5].y) {
        let value = load(a[P[1].x + image * P[2].x + h * P[2].y + w * P[2].z + channel * P[2].w]);
        if (place < 0 || value > best || (math_is_nan(value) && !math_is_nan(best))) {
          best = value;
          place = h * P[5].y + w;
        }
      }
    }
  }
  return place;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let channel = i % P[6].x;
  let w = (i / P[6].x) % P[5].y;
  let h = (i / P[6].x / P[5].y) % P[5].x;
  let image = i / P[6].x / P[5].y / P[5].x;
  var sum = 0.0;
  for (var row = max(0, (h + P[8].x - P[7].x + P[7].z) / P[7].z);
       row < P[5].z && row * P[7].z - P[8].x <= h; row++) {
    for (var column = max(0, (w + P[8].y - P[7].y + P[7].w) / P[7].w);
         column < P[5].w && column * P[7].w - P[8].y <= w; column++) {
      if (first_maximum(image, row, column, channel) == h * P[5].y + w) {
        let source = P[1].y + image * P[3].x + row * P[3].y + column * P[3].z + channel * P[3].w;
        sum += load(b[source]);
      }
    }
  }
  out[P[1].z + image * P[4].x + h * P[4].y + w * P[4].z + channel * P[4].w] = store(sum);
}
