// Software float64 on 32-bit integers, rounded as in IEEE 754: to nearest, ties to even. It has no
// subnormal numbers, infinities and NaN. Formulas that must match the CPU bit for bit use it.

// A number is the 64-bit significand (high, low) times 2^(exponent - 63). The top bit of high is
// set and the lower 11 bits of low are clear; for zero, both are 0.
struct F64 { negative: bool, exponent: i32, high: u32, low: u32 }

// Converts the IEEE 754 words vec2(upper, lower).
fn f64_of_words(words: vec2<u32>) -> F64 {
  if (((words.x >> 20u) & 0x7ffu) == 0u) { return F64(false, 0, 0u, 0u); }
  let exponent = i32((words.x >> 20u) & 0x7ffu) - 1023;
  let high = 0x80000000u | ((words.x & 0xfffffu) << 11u) | (words.y >> 21u);
  return F64((words.x >> 31u) == 1u, exponent, high, words.y << 11u);
}

// Returns number * 2^scale.
fn f64_of_integer(number: u32, scale: i32) -> F64 {
  return f64_normal(F64(false, 31 + scale, number, 0u));
}

fn f64_of_int32(number: i32) -> F64 {
  var x = f64_of_integer(u32(abs(number)), 0);
  x.negative = number < 0;
  return x;
}

fn f64_of_float32(x: f32) -> F64 {
  let word = bitcast<u32>(x);
  if ((word & 0x7f800000u) == 0u) { return F64(false, 0, 0u, 0u); }
  let exponent = i32((word >> 23u) & 0xffu) - 127;
  return F64((word >> 31u) == 1u, exponent, 0x80000000u | (word << 8u), 0u);
}

// Normalises: shifts the leading 1 to the top bit.
fn f64_normal(x: F64) -> F64 {
  var y = x;
  if (y.high == 0u) {
    y.high = y.low;
    y.low = 0u;
    y.exponent -= 32;
  }
  if (y.high == 0u) { return F64(false, 0, 0u, 0u); }
  let count = countLeadingZeros(y.high);
  if (count > 0u) {
    y.high = (y.high << count) | (y.low >> (32u - count));
    y.low = y.low << count;
    y.exponent -= i32(count);
  }
  return y;
}

// Rounds 64 bits to 53. The last bit is sticky: it stands for all bits after it.
fn f64_rounded(x: F64) -> F64 {
  var y = x;
  let rest = x.low & 0x7ffu;
  y.low = x.low - rest;
  if (rest > 0x400u || (rest == 0x400u && (x.low & 0x800u) != 0u)) {
    y.low += 0x800u;
    if (y.low == 0u) { y.high += 1u; }
    if (y.high == 0u) {
      y.high = 0x80000000u;
      y.exponent += 1;
    }
  }
  return y;
}

fn f64_negative(x: F64) -> F64 { return F64(!x.negative, x.exponent, x.high, x.low); }

// Returns the 64-bit product of two 32-bit numbers as vec2(upper, lower).
fn wide_product(x: u32, y: u32) -> vec2<u32> {
  let low = (x & 0xffffu) * (y & 0xffffu);
  let first = (x >> 16u) * (y & 0xffffu) + (low >> 16u);
  let second = (x & 0xffffu) * (y >> 16u) + (first & 0xffffu);
  let high = (x >> 16u) * (y >> 16u) + (first >> 16u) + (second >> 16u);
  return vec2<u32>(high, (second << 16u) | (low & 0xffffu));
}

fn carry(sum: u32, part: u32) -> u32 { return select(0u, 1u, sum < part); }

fn f64_multiply(x: F64, y: F64) -> F64 {
  if (x.high == 0u || y.high == 0u) { return F64(false, 0, 0u, 0u); }
  let lows = wide_product(x.low, y.low);
  let cross = wide_product(x.low, y.high);
  let other = wide_product(x.high, y.low);
  let highs = wide_product(x.high, y.high);
  let first = lows.x + cross.y;
  let second = first + other.y;
  let carries = carry(first, cross.y) + carry(second, other.y);
  let third = cross.x + other.x;
  let fourth = third + highs.y;
  let low = fourth + carries;
  let high = highs.x + carry(third, other.x) + carry(fourth, highs.y) + carry(low, carries);
  var sum = F64(x.negative != y.negative, x.exponent + y.exponent + 1, high, low);
  var rest = second;
  if ((high >> 31u) == 0u) {
    sum.high = (high << 1u) | (low >> 31u);
    sum.low = (low << 1u) | (second >> 31u);
    sum.exponent -= 1;
    rest = second << 1u;
  }
  if ((rest | lows.y) != 0u) { sum.low |= 1u; }
  return f64_rounded(sum);
}

// Shifts right; the last bit is sticky, 1 if any 1 is shifted out.
fn f64_shifted(x: F64, count: u32) -> F64 {
  var y = x;
  if (count >= 64u) { return F64(x.negative, x.exponent, 0u, 1u); }
  var lost = 0u;
  var rest = count;
  if (rest >= 32u) {
    lost = y.low;
    y.low = y.high;
    y.high = 0u;
    rest -= 32u;
  }
  if (rest > 0u) {
    lost |= y.low << (32u - rest);
    y.low = (y.low >> rest) | (y.high << (32u - rest));
    y.high = y.high >> rest;
  }
  if (lost != 0u) { y.low |= 1u; }
  return y;
}

fn f64_smaller(x: F64, y: F64) -> bool {
  if (x.high == 0u || y.high == 0u) { return x.high == 0u; }
  if (x.exponent != y.exponent) { return x.exponent < y.exponent; }
  return x.high < y.high || (x.high == y.high && x.low < y.low);
}

fn f64_add(x: F64, y: F64) -> F64 {
  var larger = x;
  var smaller = y;
  if (f64_smaller(x, y)) {
    larger = y;
    smaller = x;
  }
  if (smaller.high == 0u) { return larger; }
  smaller = f64_shifted(smaller, u32(larger.exponent - smaller.exponent));
  var sum = larger;
  if (larger.negative != smaller.negative) {
    sum.low = larger.low - smaller.low;
    sum.high = larger.high - smaller.high - carry(larger.low, smaller.low);
    return f64_rounded(f64_normal(sum));
  }
  sum.low = larger.low + smaller.low;
  let high = larger.high + smaller.high;
  let below = carry(sum.low, larger.low);
  sum.high = high + below;
  if (high < larger.high || sum.high < high) {
    sum.low = (sum.low & 1u) | (sum.low >> 1u) | (sum.high << 31u);
    sum.high = 0x80000000u | (sum.high >> 1u);
    sum.exponent += 1;
  }
  return f64_rounded(sum);
}

fn f64_subtract(x: F64, y: F64) -> F64 { return f64_add(x, f64_negative(y)); }

// Rounds a quotient or root of 56 bits, given the remainder.
fn f64_of_digits(negative: bool, exponent: i32, digits: vec2<u32>, rest: vec2<u32>) -> F64 {
  let last = select(0u, 1u, (rest.x | rest.y) != 0u);
  let high = (digits.x << 8u) | (digits.y >> 24u);
  return f64_rounded(F64(negative, exponent, high, (digits.y << 8u) | last));
}

fn less(x: vec2<u32>, y: vec2<u32>) -> bool { return x.x < y.x || (x.x == y.x && x.y < y.y); }
fn difference(x: vec2<u32>, y: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(x.x - y.x - carry(x.y, y.y), x.y - y.y);
}
fn doubled(x: vec2<u32>) -> vec2<u32> { return vec2<u32>((x.x << 1u) | (x.y >> 31u), x.y << 1u); }

fn f64_divide(x: F64, y: F64) -> F64 {
  if (x.high == 0u) { return x; }
  var rest = vec2<u32>(x.high >> 11u, (x.high << 21u) | (x.low >> 11u));
  let divisor = vec2<u32>(y.high >> 11u, (y.high << 21u) | (y.low >> 11u));
  var exponent = x.exponent - y.exponent;
  if (less(rest, divisor)) {
    rest = doubled(rest);
    exponent -= 1;
  }
  var digits = vec2<u32>(0u, 0u);
  for (var i = 0; i < 56; i++) {
    digits = doubled(digits);
    if (!less(rest, divisor)) {
      rest = difference(rest, divisor);
      digits.y |= 1u;
    }
    rest = doubled(rest);
  }
  return f64_of_digits(x.negative != y.negative, exponent, digits, rest);
}

fn f64_sqrt(x: F64) -> F64 {
  if (x.high == 0u) { return x; }
  let odd = x.exponent & 1;
  var pairs = vec2<u32>(x.high, x.low);
  if (odd == 0) { pairs = vec2<u32>(x.high >> 1u, (x.high << 31u) | (x.low >> 1u)); }
  var rest = vec2<u32>(0u, 0u);
  var digits = vec2<u32>(0u, 0u);
  for (var i = 0; i < 56; i++) {
    rest = doubled(doubled(rest));
    rest.y |= pairs.x >> 30u;
    pairs = doubled(doubled(pairs));
    let trial = doubled(doubled(digits)) | vec2<u32>(0u, 1u);
    digits = doubled(digits);
    if (!less(rest, trial)) {
      rest = difference(rest, trial);
      digits.y |= 1u;
    }
  }
  return f64_of_digits(false, (x.exponent - odd) / 2, digits, rest);
}

// Returns floor(x), clamped to [-2^30, 2^30].
fn f64_floor(x: F64) -> i32 {
  if (x.high == 0u) { return 0; }
  if (x.exponent < 0) { return select(0, -1, x.negative); }
  if (x.exponent >= 30) { return select(1 << 30u, -(1 << 30u), x.negative); }
  let shift = u32(31 - x.exponent);
  let whole = i32(x.high >> shift);
  let part = (x.high & ((1u << shift) - 1u)) | x.low;
  return select(whole, select(-whole, -whole - 1, part != 0u), x.negative);
}

// Rounds to the nearest float32; x must be 0 or normal in float32.
fn float32_of(x: F64) -> f32 {
  let sign = select(0u, 0x80000000u, x.negative);
  if (x.high == 0u) { return bitcast<f32>(sign); }
  var digits = x.high >> 8u;
  let rest = ((x.high & 0xffu) << 1u) | select(0u, 1u, x.low != 0u);
  if (rest > 0x100u || (rest == 0x100u && (digits & 1u) == 1u)) { digits += 1u; }
  // A carry out of the significand correctly adds 1 to the exponent.
  return bitcast<f32>(sign | ((u32(x.exponent + 126) << 23u) + digits));
}
