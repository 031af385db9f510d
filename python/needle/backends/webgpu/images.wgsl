// run_images runs one pass over a batch of images, bit for bit as src/cuda/augment.cu does. A
// thread computes one pixel of three channels, or one value if there are not three channels. It
// traces the pixel back through windows and erased rectangles to its source, and applies colours
// and normalisation. src/core/image_pass.h describes the passes and their records,
// src/core/pixel_formulas.h the formulas. a: images, b: words of all records and tables.

// P[0] = (threads, 1 if a's bytes are packed four to a word, unused, workgroups per row), P[1] to
// P[4] = the parameters of the pass: (channels, height, width, record words), (records, strides of
// row, column and channel), (steps before the resampling, steps, resampling, its offset in the
// record), (word of its fill, 1 if the input, the intermediate and the output are floats), P[5] =
// (offset of out, of a, elements of an image of out), then for each step its kind, its offset and
// the word of its fill.
const WINDOW = 0;
const ERASE = 1;
const COLOUR_BYTES = 2;
const COLOUR_FLOATS = 3;
const SCALE = 4;
const NEAREST = 1;
const BILINEAR = 2;
const AFFINE_NEAREST = 3;

var<private> record: i32;
var<private> channel: i32;

fn word(at: i32) -> i32 { return bitcast<i32>(b[at]); }
fn real(at: i32) -> f32 { return bitcast<f32>(b[at]); }
fn filled(fill: i32) -> vec3<f32> { return vec3<f32>(bitcast<f32>(fill)); }

// Returns x * y in a form that a compiler cannot fuse with an addition: the xor operand is 0, but
// the compiler does not know that.
fn product(x: f32, y: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x * y) ^ (u32(P[0].x) >> 31u));
}

fn products(x: vec3<f32>, y: f32) -> vec3<f32> {
  return vec3<f32>(product(x.x, y), product(x.y, y), product(x.z, y));
}

// Returns x / y rounded as in IEEE 754, which WGSL does not guarantee. Rounding to 53 bits first
// gives the same result.
fn quotient(x: f32, y: f32) -> f32 {
  let exponents = (bitcast<vec2<u32>>(vec2<f32>(x, y)) >> vec2<u32>(23u)) & vec2<u32>(0xffu);
  if (any(exponents == vec2<u32>(0u)) || any(exponents == vec2<u32>(255u))) { return x / y; }
  let exact = f64_divide(f64_of_float32(x), f64_of_float32(y));
  if (abs(exact.exponent) > 125) { return x / y; }
  return float32_of(exact);
}

fn element(at: i32) -> f32 {
  if (P[4].y == 1) { return bitcast<f32>(a[at]); }
  if (P[0].y == 1) { return f32((a[at >> 2u] >> (8u * (u32(at) & 3u))) & 255u); }
  return f32(a[at]);
}

fn source_pixel(y: i32, x: i32) -> vec3<f32> {
  let at = P[5].y + word(record) + y * word(record + 2) + x * word(record + 3);
  let step = word(record + 4);
  if (P[1].x != 3) { return vec3<f32>(element(at + channel * step)); }
  return vec3<f32>(element(at), element(at + step), element(at + 2 * step));
}

fn clip(value: f32, most: f32) -> f32 { return clamp(value, 0.0, most); }

// The last bit of a float above 2^23 has value 1, so the addition rounds half to even.
fn to_byte(value: f32) -> f32 {
  return f32(bitcast<u32>(clip(value, 255.0) + 8388608.0) & 255u);
}

fn mixed_channel(at: i32, pixel: vec3<f32>) -> f32 {
  var sum = product(real(at), pixel.x);
  if (P[1].x == 3) {
    sum += product(real(at + 1), pixel.y);
    sum += product(real(at + 2), pixel.z);
  }
  return sum + real(at + 3);
}

fn coloured(at: i32, bytes: bool, pixel: vec3<f32>) -> vec3<f32> {
  if (word(at + 12) == 0) { return pixel; }
  var sums = vec3<f32>(mixed_channel(at, pixel));
  if (P[1].x == 3) {
    sums.y = mixed_channel(at + 4, pixel);
    sums.z = mixed_channel(at + 8, pixel);
  }
  for (var c = 0; c < 3; c++) {
    if (bytes) { sums[c] = to_byte(sums[c]); } else { sums[c] = clip(sums[c], 1.0); }
  }
  return sums;
}

// Returns x / 255 of a byte: the products are exact or rounded so that their sum is the quotient.
fn scaled(x: f32) -> f32 { return product(x, 0x1.0102p-8f) + product(x, -0x1.fdfdfep-25f); }

fn normalised(at: i32, pixel: vec3<f32>) -> vec3<f32> {
  var result = pixel;
  for (var c = 0; c < 3; c++) {
    let place = at + select(channel, c, P[1].x == 3);
    result[c] = quotient(pixel[c] - real(place), real(place + P[1].x));
    if (P[1].x != 3) { break; }
  }
  return result;
}

fn changed(begin: i32, end: i32, start: vec3<f32>) -> vec3<f32> {
  var pixel = start;
  for (var s = begin; s < end; s++) {
    let kind = P[6 + s].x;
    let at = P[6 + s].y;
    if (kind == WINDOW || kind == ERASE) { continue; }
    if (kind == COLOUR_BYTES || kind == COLOUR_FLOATS) {
      pixel = coloured(record + at, kind == COLOUR_BYTES, pixel);
    } else if (kind == SCALE) {
      pixel = vec3<f32>(scaled(pixel.x), scaled(pixel.y), scaled(pixel.z));
    } else {
      pixel = normalised(at, pixel);
    }
  }
  return pixel;
}

// Where pixel (y, x) after the steps [begin, end) comes from: a position before them, or the fill
// of the step before `step`.
struct Origin { y: i32, x: i32, step: i32, filled: bool }

fn origin_of(begin: i32, end: i32, row: i32, column: i32) -> Origin {
  var y = row;
  var x = column;
  for (var s = end; s > begin; s--) {
    let at = record + P[5 + s].y;
    if (P[5 + s].x == WINDOW) {
      if (y < word(at) || y >= word(at + 2) || x < word(at + 1) || x >= word(at + 3)) {
        return Origin(y, x, s, true);
      }
      y = word(at + 4) * y + word(at + 5);
      x = word(at + 6) * x + word(at + 7);
    } else if (P[5 + s].x == ERASE) {
      if (y >= word(at) && y < word(at + 2) && x >= word(at + 1) && x < word(at + 3)) {
        return Origin(y, x, s, true);
      }
    }
  }
  return Origin(y, x, begin, false);
}

// Returns a pixel of the resampling's input.
fn before(y: i32, x: i32) -> vec3<f32> {
  let origin = origin_of(0, P[3].x, y, x);
  if (origin.filled) { return changed(origin.step, P[3].x, filled(P[5 + origin.step].z)); }
  return changed(0, P[3].x, source_pixel(origin.y, origin.x));
}

// ---- resizing, by tables of offsets and weights ---------------------------------------------------

fn bilinear(y: i32, x: i32) -> vec3<f32> {
  let at = record + P[3].w;
  let down = word(at + 2) + y * word(at + 3);
  let across = word(at + 4) + x * word(at + 5);
  if (P[4].z == 1) { return sum_floats(at, down, across); }
  return sum_bytes(at, down, across);
}

fn sum_bytes(at: i32, down: i32, across: i32) -> vec3<f32> {
  var sums = vec3<i32>(1 << 20u);
  for (var j = 0; j < word(across + 1); j++) {
    var lines = vec3<i32>(1 << 6u);
    for (var i = 0; i < word(down + 1); i++) {
      let pixel = before(word(at) + word(down) + i, word(at + 1) + word(across) + j);
      lines += word(down + 2 + i) * vec3<i32>(pixel);
    }
    sums += word(across + 2 + j) * (lines >> vec3<u32>(7u));
  }
  return vec3<f32>(sums >> vec3<u32>(21u));
}

fn sum_floats(at: i32, down: i32, across: i32) -> vec3<f32> {
  var sums = vec3<f32>(0.0);
  for (var j = 0; j < word(across + 1); j++) {
    var lines = vec3<f32>(0.0);
    for (var i = 0; i < word(down + 1); i++) {
      let pixel = before(word(at) + word(down) + i, word(at + 1) + word(across) + j);
      lines += products(pixel, real(down + 2 + i));
    }
    sums += products(lines, real(across + 2 + j));
  }
  return sums;
}

// ---- affine maps -----------------------------------------------------------------------------------

fn matrix(at: i32) -> F64 { return f64_of_words(vec2<u32>(b[at + 1], b[at])); }

// Returns the input coordinate along the axis whose three matrix entries begin at `at`.
fn coordinate(at: i32, y: i32, x: i32) -> F64 {
  let moved = f64_multiply(matrix(at + 2), f64_of_int32(y));
  return f64_add(f64_add(f64_multiply(matrix(at), f64_of_int32(x)), moved), matrix(at + 4));
}

fn corner(at: i32, y: i32, x: i32) -> vec3<f32> {
  if (x >= 0 && x < word(at + 13) && y >= 0 && y < word(at + 12)) { return before(y, x); }
  return filled(P[4].x);
}

fn affine_nearest(y: i32, x: i32) -> vec3<f32> {
  let at = record + P[3].w;
  let half = f64_of_integer(1u, -1);
  let to_x = f64_floor(f64_add(coordinate(at, y, x), half));
  return corner(at, f64_floor(f64_add(coordinate(at + 6, y, x), half)), to_x);
}

// Rounds x to units of 2^-11, halves up.
fn in_units(x: F64) -> i32 {
  var large = x;
  if (x.high != 0u) { large.exponent += 11; }
  return f64_floor(f64_add(large, f64_of_integer(1u, -1)));
}

fn affine_bilinear(y: i32, x: i32) -> vec3<f32> {
  let at = record + P[3].w;
  let to_x = coordinate(at, y, x);
  let to_y = coordinate(at + 6, y, x);
  if (P[4].z == 1) { return mixed_floats(at, to_y, to_x); }
  let units = vec2<i32>(in_units(to_x), in_units(to_y));
  let first = units >> vec2<u32>(11u);
  let u = units.x & 2047;
  let v = units.y & 2047;
  let upper = vec3<i32>(corner(at, first.y, first.x)) * (2048 - u)
    + vec3<i32>(corner(at, first.y, first.x + 1)) * u;
  let lower = vec3<i32>(corner(at, first.y + 1, first.x)) * (2048 - u)
    + vec3<i32>(corner(at, first.y + 1, first.x + 1)) * u;
  return vec3<f32>((upper * (2048 - v) + lower * v + vec3<i32>(1 << 21u)) >> vec3<u32>(22u));
}

// Returns x - whole, or 0 for an x so large that it is outside any image.
fn fraction(x: F64, whole: i32) -> f32 {
  if (x.exponent >= 30) { return 0.0; }
  return float32_of(f64_subtract(x, f64_of_int32(whole)));
}

fn mixed_floats(at: i32, to_y: F64, to_x: F64) -> vec3<f32> {
  let left = f64_floor(to_x);
  let top = f64_floor(to_y);
  let u = fraction(to_x, left);
  let v = fraction(to_y, top);
  let upper = products(corner(at, top, left), 1.0 - u) + products(corner(at, top, left + 1), u);
  let lower =
    products(corner(at, top + 1, left), 1.0 - u) + products(corner(at, top + 1, left + 1), u);
  return products(upper, 1.0 - v) + products(lower, v);
}

// ----------------------------------------------------------------------------------------------------

fn resampled(y: i32, x: i32) -> vec3<f32> {
  let at = record + P[3].w;
  if (P[3].z == 0) { return before(y, x); }
  if (P[3].z == NEAREST) {
    return before(word(at) + word(word(at + 2) + y), word(at + 1) + word(word(at + 4) + x));
  }
  if (P[3].z == BILINEAR) { return bilinear(y, x); }
  if (P[3].z == AFFINE_NEAREST) { return affine_nearest(y, x); }
  return affine_bilinear(y, x);
}

fn write_value(at: i32, value: f32) {
  if (P[4].w == 1) { out[at] = bitcast<u32>(value); } else { out[at] = u32(value); }
}

fn run(thread: i32) {
  let x = thread % P[1].z;
  var rest = thread / P[1].z;
  let y = rest % P[1].y;
  rest = rest / P[1].y;
  channel = 0;
  if (P[1].x != 3) {
    channel = rest % P[1].x;
    rest = rest / P[1].x;
  }
  record = P[2].x + rest * P[1].w;
  let origin = origin_of(P[3].x, P[3].y, y, x);
  var pixel = vec3<f32>(0.0);
  if (origin.filled) { pixel = filled(P[5 + origin.step].z); } else { pixel = resampled(origin.y, origin.x); }
  pixel = changed(origin.step, P[3].y, pixel);
  let at = P[5].x + rest * P[5].z + y * P[2].y + x * P[2].z;
  write_value(at + channel * P[2].w, pixel.x);
  if (P[1].x == 3) {
    write_value(at + P[2].w, pixel.y);
    write_value(at + 2 * P[2].w, pixel.z);
  }
}
