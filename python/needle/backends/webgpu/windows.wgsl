// The windows of a convolution, shared by conv2d.wgsl, conv2d_input_grad.wgsl and
// conv2d_weight_grad.wgsl. Images are channels last.

@group(0) @binding(0) var<storage, read> P: array<vec4<i32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> a: array<u32>;
@group(0) @binding(3) var<storage, read_write> b: array<u32>;
@group(0) @binding(4) var<storage, read_write> bias: array<u32>;

// P[0] = (rows, k, columns, pieces of k), P[1] = offsets of (images, weight, result, bias),
// P[2], P[3] = strides of images and result (N, H, W, C), P[4] = strides of the weight (KH, KW, C, O),
// P[5] = (H, W, OH, OW), P[6] = (KH, KW, C, O) of a group, P[7] = stride and padding,
// P[8] = dilation, stride of the bias, epilogue: 1 for a bias, 2 for relu.
var<private> group: i32;
fn left_along_k() -> bool { return true; }
fn right_along_k() -> bool { return false; }
fn dot4(x: vec4<i32>, y: vec4<i32>) -> i32 { return x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w; }

// Returns the (image, row, column) of index i.
fn pixel(i: i32, height: i32, width: i32) -> vec3<i32> {
  return vec3<i32>(i / (height * width), (i / width) % height, i % width);
}

// Returns the element of an image that a result's window reads at (row, column, channel) ``tap``.
fn image_at(to: vec3<i32>, tap: vec3<i32>) -> T {
  let h = to.y * P[7].x - P[7].z + tap.x * P[8].x;
  let w = to.z * P[7].y - P[7].w + tap.y * P[8].y;
  if (h < 0 || w < 0 || h >= P[5].x || w >= P[5].y) { return T(0); }
  return load(a[P[1].x + dot4(vec4<i32>(to.x, h, w, group * P[6].z + tap.z), P[2])]);
}
