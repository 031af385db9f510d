// avg_pool2d_grad runs one thread per pixel, which gathers the gradients of its windows. b:
// gradient of the result.
// P[1] = offsets of (x, y, x_grad), P[2], P[3], P[4] = their strides (N, H, W, C), where y is the
// result or its gradient, P[5] = (H, W, OH, OW), P[6] = (C, ...), P[7] = kernel and stride, P[8] =
// padding.

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
      let source = P[1].y + image * P[3].x + row * P[3].y + column * P[3].z + channel * P[3].w;
      sum += load(b[source]);
    }
  }
  let to = P[1].z + image * P[4].x + h * P[4].y + w * P[4].z + channel * P[4].w;
  out[to] = store(sum / f32(P[7].x * P[7].y));
}
