// avg_pool2d runs one thread per result and counts padding as zeros. a: images.
// P[1] = offsets of (x, y, x_grad), P[2], P[3], P[4] = their strides (N, H, W, C), where y is the
// result or its gradient, P[5] = (H, W, OH, OW), P[6] = (C, ...), P[7] = kernel and stride, P[8] =
// padding.

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let i = thread_of(group, local);
  if (i >= P[0].x) { return; }
  let channel = i % P[6].x;
  let column = (i / P[6].x) % P[5].w;
  let row = (i / P[6].x / P[5].w) % P[5].z;
  let image = i / P[6].x / P[5].w / P[5].z;
  var sum = 0.0;
  for (var y = 0; y < P[7].x; y++) {
    let h = row * P[7].z - P[8].x + y;
    for (var x = 0; x < P[7].y; x++) {
      let w = column * P[7].w - P[8].y + x;
      if (h >= 0 && w >= 0 && h < P[5].x && w < P[5].y) {
        sum += load(a[P[1].x + image * P[2].x + h * P[2].y + w * P[2].z + channel * P[2].w]);
      }
    }
  }
  let to = P[1].y + image * P[3].x + row * P[3].y + column * P[3].z + channel * P[3].w;
  out[to] = store(sum / f32(P[7].x * P[7].y));
}
