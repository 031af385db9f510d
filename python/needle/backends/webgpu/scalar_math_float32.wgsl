// The functions of elementwise.wgsl for float32. exp, log, tanh and erf are those of
// src/core/scalar_math.h; the others use float32 where C++ uses double, since WGSL has no double.
// WGSL lets a driver assume that there are no NaN and infinities, so they are detected by their
// bits.
alias T = f32;
fn load(bits: u32) -> T { return bitcast<f32>(bits); }
fn store(x: T) -> u32 { return bitcast<u32>(x); }

// A WGSL constant cannot be NaN or infinity, but a private variable can.
var<private> nan_bits: u32 = 0x7fc00000u;
var<private> infinity_bits: u32 = 0x7f800000u;
fn math_nan() -> T { return bitcast<f32>(nan_bits); }
fn math_infinity() -> T { return bitcast<f32>(infinity_bits); }
fn math_magnitude(x: T) -> u32 { return bitcast<u32>(x) & 0x7fffffffu; }
fn math_is_nan(x: T) -> bool { return math_magnitude(x) > 0x7f800000u; }
fn math_is_infinite(x: T) -> bool { return math_magnitude(x) == 0x7f800000u; }
fn math_is_finite(x: T) -> bool { return math_magnitude(x) < 0x7f800000u; }
fn math_copysign(x: T, sign: T) -> T {
  return bitcast<f32>(math_magnitude(x) | (bitcast<u32>(sign) & 0x80000000u));
}

fn math_add(x: T, y: T) -> T { return x + y; }
fn math_subtract(x: T, y: T) -> T { return x - y; }
fn math_multiply(x: T, y: T) -> T { return x * y; }
fn math_negative(x: T) -> T { return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u); }
fn math_abs(x: T) -> T { return bitcast<f32>(math_magnitude(x)); }
fn math_sign(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  return select(0.0, 1.0, x > 0.0) - select(0.0, 1.0, x < 0.0);
}
fn math_maximum(x: T, y: T) -> T { return select(y, x, x > y || math_is_nan(x)); }
fn math_minimum(x: T, y: T) -> T { return select(y, x, x < y || math_is_nan(x)); }

// Returns the exact remainder of |x| / |y| with the sign of x, by integer division of significands.
fn math_fmod(x: T, y: T) -> T {
  let above = math_magnitude(x);
  let below = math_magnitude(y);
  if (above >= 0x7f800000u || below == 0u || below > 0x7f800000u) { return math_nan(); }
  if (above < below) { return x; }
  var shift = max(above >> 23u, 1u) - max(below >> 23u, 1u);
  let divisor = (below & 0x7fffffu) | select(0u, 0x800000u, below >= 0x800000u);
  var rest = ((above & 0x7fffffu) | select(0u, 0x800000u, above >= 0x800000u)) % divisor;
  while (shift > 0u) {
    let step = min(shift, 8u);
    rest = (rest << step) % divisor;
    shift -= step;
  }
  // Compute rest * 2^(exponent of y) on the bits, since a driver may flush subnormal products.
  var exponent = max(below >> 23u, 1u);
  while (rest != 0u && rest < 0x800000u && exponent > 1u) {
    rest = rest << 1u;
    exponent -= 1u;
  }
  if (rest >= 0x800000u) { rest = (rest & 0x7fffffu) | (exponent << 23u); }
  return bitcast<f32>(rest | (bitcast<u32>(x) & 0x80000000u));
}

fn math_floor_divide(x: T, y: T) -> T {
  if (y == 0.0) { return x / y; }
  let rest = math_fmod(x, y);
  var quotient = (x - rest) / y;
  if (rest != 0.0 && (y < 0.0) != (rest < 0.0)) { quotient -= 1.0; }
  if (quotient == 0.0) { return math_copysign(0.0, x / y); }
  let whole = floor(quotient);
  return select(whole, whole + 1.0, quotient - whole > 0.5);
}

fn math_remainder(x: T, y: T) -> T {
  let rest = math_fmod(x, y);
  if (rest == 0.0) { return math_copysign(0.0, y); }
  return select(rest, rest + y, (y < 0.0) != (rest < 0.0));
}

// Returns x * 2^n. Two factors keep subnormal results and those near the maximum finite and
// nonzero.
fn math_scaled(x: T, n: i32) -> T {
  let half = n >> 1u;
  return x * bitcast<f32>(u32(half + 127) << 23u) * bitcast<f32>(u32(n - half + 127) << 23u);
}

// e^r - 1 for |r| <= ln2 / 2
fn math_grown(r: T) -> T {
  var p = 0.00139337336;
  p = p * r + 0.00836323574;
  p = p * r + 0.041666463;
  p = p * r + 0.166665763;
  p = p * r + 0.5;
  return p * r * r + r;
}

fn math_exp_in_range(x: T) -> T {
  let n = round(x * 1.44269504088896341);
  let r = x - n * 0.693359375 + n * 2.12194440e-4;
  return math_scaled(math_grown(r) + 1.0, i32(n));
}

fn math_exp(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  if (x > 89.0) { return math_infinity(); }
  return math_exp_in_range(max(x, -104.0));
}

fn math_expm1(x: T) -> T {
  if (math_is_nan(x) || x == 0.0) { return x; }
  if (x > 80.0) { return math_exp(x); }
  if (x < -20.0) { return -1.0; }
  let n = round(x * 1.44269504088896341);
  let r = x - n * 0.693359375 + n * 2.12194440e-4;
  if (n == 0.0) { return math_grown(x); }
  let scale = math_scaled(1.0, i32(n));
  return scale * math_grown(r) + (scale - 1.0);
}

// Returns log(1 + f) - f: log(1 + f) = f + f^3 p - f^2 / 2 for 1 + f in [sqrt(1/2), sqrt(2)).
fn math_log_tail(f: T) -> T {
  var p = 0.0714975372;
  p = p * f + -0.115712009;
  p = p * f + 0.116615109;
  p = p * f + -0.124110505;
  p = p * f + 0.142499372;
  p = p * f + -0.166684806;
  p = p * f + 0.200007081;
  p = p * f + -0.249999896;
  p = p * f + 0.333333313;
  return f * (f * f) * p - 0.5 * (f * f);
}

// Returns e and m - 1 of a positive x = 2^e m with m in [sqrt(1/2), sqrt(2)).
fn math_split(x: T) -> vec2<f32> {
  var bits = bitcast<u32>(x);
  var e = 0.0;
  if (bits < 0x800000u) {  // subnormal: convert its word, since a product may be flushed
    bits = bitcast<u32>(f32(bits));
    e = -149.0;
  }
  bits -= 0x3f3504f3u;
  let m = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u);
  return vec2<f32>(e + f32(bitcast<i32>(bits) >> 23u), m - 1.0);
}

// Returns (1, log(x)) for a special x (NaN, zero, negative, infinite), else (0, 0).
fn math_log_special(x: T) -> vec2<f32> {
  if (math_is_nan(x)) { return vec2<f32>(1.0, x); }
  if (math_magnitude(x) == 0u) { return vec2<f32>(1.0, -math_infinity()); }
  if (x < 0.0 || (bitcast<u32>(x) >> 31u) == 1u) { return vec2<f32>(1.0, math_nan()); }
  if (math_is_infinite(x)) { return vec2<f32>(1.0, x); }
  return vec2<f32>(0.0, 0.0);
}

fn math_log(x: T) -> T {
  let special = math_log_special(x);
  if (special.x != 0.0) { return special.y; }
  let s = math_split(x);
  return s.y + (math_log_tail(s.y) + s.x * -2.12194440e-4) + s.x * 0.693359375;
}

fn math_log2(x: T) -> T {
  let special = math_log_special(x);
  if (special.x != 0.0) { return special.y; }
  let s = math_split(x);
  return s.x + (s.y + math_log_tail(s.y)) * 1.44269504;
}

fn math_log10(x: T) -> T { return math_log(x) * 0.4342944819; }

fn math_log1p(x: T) -> T {
  if (math_is_nan(x) || x == 0.0) { return x; }
  if (x > -0.29 && x < 0.41) { return x + math_log_tail(x); }
  return math_log(1.0 + x);
}

// Returns sin and cos of x reduced modulo pi / 2, subtracted in four parts, and the quadrant in z.
// They are accurate to 1e-7 for |x| below 1e5.
fn math_sin_cos(x: T) -> vec3<f32> {
  let n = round(x * 0.636619772);
  let r = (((x - n * 1.5703125) - n * 4.837512969970703e-4) - n * 7.549516e-8) - n * 5.1266e-12;
  let z = r * r;
  var s = 2.7221e-6;
  s = s * z - 1.98407e-4;
  s = s * z + 8.33332943e-3;
  s = s * z - 1.66666667e-1;
  var k = -2.715e-7;
  k = k * z + 2.480015e-5;
  k = k * z - 1.38888883e-3;
  k = k * z + 4.16666666e-2;
  return vec3<f32>(r + r * z * s, 1.0 - 0.5 * z + z * z * k, n);
}

fn math_quadrant(n: T) -> i32 { return i32(n - 4.0 * floor(n * 0.25)); }

fn math_sin(x: T) -> T {
  if (!math_is_finite(x)) { return math_nan(); }
  if (x == 0.0) { return x; }
  let parts = math_sin_cos(x);
  let quadrant = math_quadrant(parts.z);
  let value = select(parts.x, parts.y, (quadrant & 1) == 1);
  return select(value, -value, quadrant >= 2);
}

fn math_cos(x: T) -> T {
  if (!math_is_finite(x)) { return math_nan(); }
  let parts = math_sin_cos(x);
  let quadrant = math_quadrant(parts.z);
  let value = select(parts.y, parts.x, (quadrant & 1) == 1);
  return select(value, -value, quadrant == 1 || quadrant == 2);
}

fn math_tan(x: T) -> T {
  if (!math_is_finite(x)) { return math_nan(); }
  if (x == 0.0) { return x; }
  let parts = math_sin_cos(x);
  if ((math_quadrant(parts.z) & 1) == 1) { return -parts.y / parts.x; }
  return parts.x / parts.y;
}

// Returns atan of a value from 0 to tan(pi / 8), as a series of odd powers.
fn math_atan_small(x: T) -> T {
  let z = x * x;
  var p = 0.0573;
  p = p * z - 0.0890;
  p = p * z + 0.1110;
  p = p * z - 0.142856;
  p = p * z + 0.2;
  p = p * z - 0.333333333;
  return x + x * z * p;
}

fn math_atan_positive(x: T) -> T {
  if (x > 2.41421356) { return 1.57079633 - math_atan_small(1.0 / x); }
  if (x > 0.41421356) { return 0.785398163 + math_atan_small((x - 1.0) / (x + 1.0)); }
  return math_atan_small(x);
}

fn math_atan(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  if (math_is_infinite(x)) { return math_copysign(1.57079633, x); }
  return math_copysign(math_atan_positive(math_abs(x)), x);
}

fn math_atan2(y: T, x: T) -> T {
  if (math_is_nan(x) || math_is_nan(y)) { return math_nan(); }
  let left = (bitcast<u32>(x) >> 31u) == 1u;
  let a = math_abs(y);
  let b = math_abs(x);
  var angle = 0.0;
  if (math_is_infinite(x) && math_is_infinite(y)) {
    angle = 0.785398163;
  } else if (math_is_infinite(y) || (b == 0.0 && a != 0.0)) {
    angle = 1.57079633;
  } else if (math_is_infinite(x) || a == 0.0) {
    angle = 0.0;
  } else if (a > b) {
    angle = 1.57079633 - math_atan_positive(b / a);
  } else {
    angle = math_atan_positive(a / b);
  }
  return math_copysign(select(angle, 3.14159265 - angle, left), y);
}

// asin x = atan(x / sqrt(1 - x^2)), where 1 - x^2 is a product of exact factors.
fn math_asin(x: T) -> T {
  let a = math_abs(x);
  if (!(a <= 1.0)) { return math_nan(); }
  if (a == 1.0) { return math_copysign(1.57079633, x); }
  return math_copysign(math_atan_positive(a / sqrt((1.0 - a) * (1.0 + a))), x);
}

fn math_acos(x: T) -> T {
  if (!(math_abs(x) <= 1.0)) { return math_nan(); }
  if (x == -1.0) { return 3.14159265; }
  return 2.0 * math_atan_positive(sqrt((1.0 - x) / (1.0 + x)));
}

fn math_sinh(x: T) -> T {
  if (!math_is_finite(x) || x == 0.0) { return x; }
  let a = math_abs(x);
  if (a > 40.0) {
    let half = math_exp(0.5 * a);
    return math_copysign(0.5 * half * half, x);
  }
  let grown = math_expm1(a);
  return math_copysign(0.5 * (grown + grown / (grown + 1.0)), x);
}

fn math_cosh(x: T) -> T {
  let a = math_abs(x);
  let half = math_exp(0.5 * a);
  if (a > 40.0) { return 0.5 * half * half; }
  let e = math_exp(a);
  return 0.5 * (e + 1.0 / e);
}

fn math_tanh(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  let a = math_abs(x);
  let square = x * x;
  var p = 0.00225890265;
  p = p * square + -0.00831500906;
  p = p * square + 0.0217603501;
  p = p * square + -0.0539582185;
  p = p * square + 0.133332983;
  p = p * square + -0.333333343;
  if (a < 0.625) { return math_copysign(a + a * square * p, x); }
  return math_copysign(1.0 - 2.0 / (math_exp_in_range(min(2.0 * a, 20.0)) + 1.0), x);
}

fn math_asinh(x: T) -> T {
  if (!math_is_finite(x) || x == 0.0) { return x; }
  let a = math_abs(x);
  if (a > 1e9) { return math_copysign(math_log(a) + 0.693147181, x); }
  let square = a * a;
  return math_copysign(math_log1p(a + square / (1.0 + sqrt(square + 1.0))), x);
}

fn math_acosh(x: T) -> T {
  if (math_is_nan(x) || x < 1.0) { return math_nan(); }
  if (x > 1e9) { return math_log(x) + 0.693147181; }
  let d = x - 1.0;
  return math_log1p(d + sqrt(d * (d + 2.0)));
}

fn math_atanh(x: T) -> T {
  let a = math_abs(x);
  if (!(a <= 1.0)) { return math_nan(); }
  if (a == 1.0) { return math_copysign(math_infinity(), x); }
  return math_copysign(0.5 * math_log1p(2.0 * a / (1.0 - a)), x);
}

// erf(x) = x + x P(x^2) near zero, 1 - exp(Q(|x|)) beyond; 1 from 4 on.
fn math_erf(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  let t = min(math_abs(x), 4.0);
  let square = t * t;
  var p = 8.35272876e-05;
  p = p * square - 0.000813927094;
  p = p * square + 0.00520078698;
  p = p * square - 0.0268593188;
  p = p * square + 0.112836942;
  p = p * square - 0.376126349;
  p = p * square + 0.128379166;
  var q = -2.14253141e-05;
  q = q * t + 0.000438137969;
  q = q * t - 0.00418817485;
  q = q * t + 0.0251626484;
  q = q * t - 0.108344086;
  q = q * t - 0.633291364;
  q = q * t - 1.12954116;
  q = q * t + 0.000179875438;
  return math_copysign(select(1.0 - math_exp_in_range(q), t + t * p, t < 0.92), x);
}

fn math_odd(y: T) -> bool {
  let a = math_abs(y);
  return a < 16777216.0 && floor(a) == a && floor(a * 0.5) * 2.0 != a;
}

// Keeps the upper 12 bits of the significand, so that a product of two such numbers is exact.
fn math_head(x: T) -> T { return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u); }

// Returns |x|^y = 2^(y log2 |x|) for finite x and y, x not 0. The logarithm is a sum of two
// numbers.
fn math_power_positive(x: T, y: T) -> T {
  let parts = math_split(x);
  let f = parts.y;
  let denominator = 2.0 + f;
  let s = f / denominator;
  let head = math_head(s);
  // This is f - head * denominator, exactly; denominator = upper + lower.
  let upper = math_head(denominator);
  let lower = f - (upper - 2.0);
  let missing = ((f - head * upper) - head * lower) / denominator;
  let z = s * s;
  var p = 0.118;
  p = p * z + 0.14267;
  p = p * z + 0.200002;
  p = p * z + 0.33333333;
  let rest = 2.0 * missing + 2.0 * s * z * p;  // log m = 2 head + rest
  let exact = 2.0 * head * 1.4423828125;  // 1 / ln2 = 1.4423828125 + 0.00031222838
  let small = 2.0 * head * 0.00031222838 + rest * 1.44269504;
  let sum = parts.x + exact;
  let error = select((exact - sum) + parts.x, (parts.x - sum) + exact, parts.x != 0.0) + small;
  let logarithm = math_head(sum + error);
  let tail = (sum - logarithm) + error;
  let most = math_head(y);
  let product = most * logarithm;
  if (product > 300.0) { return math_infinity(); }
  if (product < -300.0) { return 0.0; }
  let little = (y - most) * logarithm + y * tail;
  let n = round(product + little);
  let r = (product - n) + little;
  return math_scaled(1.0 + math_grown(r * 0.693147181), i32(clamp(n, -252.0, 252.0)));
}

fn math_power(x: T, y: T) -> T {
  if (math_magnitude(y) == 0u || bitcast<u32>(x) == 0x3f800000u) { return 1.0; }
  if (math_is_nan(x) || math_is_nan(y)) { return math_nan(); }
  let a = math_abs(x);
  let negative = (bitcast<u32>(x) >> 31u) == 1u && math_odd(y);
  let up = (bitcast<u32>(y) >> 31u) == 0u;
  if (math_is_infinite(y)) {
    if (a == 1.0) { return 1.0; }
    return select(0.0, math_infinity(), (a > 1.0) == up);
  }
  var result = 0.0;
  if (math_magnitude(x) == 0u) {
    result = select(math_infinity(), 0.0, up);
  } else if (math_is_infinite(x)) {
    result = select(0.0, math_infinity(), up);
  } else if (x < 0.0 && floor(y) != y) {
    return math_nan();
  } else {
    result = math_power_positive(a, y);
  }
  return select(result, math_negative(result), negative);
}

// ---- activations: 1 / (1 + e^-x) and its kin, without loss where e^x is small ----

fn math_sigmoid(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  let t = math_exp(-math_abs(x));
  return select(1.0, t, x < 0.0) / (1.0 + t);
}

fn math_softplus(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  return max(x, 0.0) + math_log1p(math_exp(-math_abs(x)));
}

fn math_log_sigmoid(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  return (min(x, 0.0) - math_log1p(math_exp(-math_abs(x)))) + 0.0;
}

fn math_silu(x: T) -> T {
  if (x < -80.0 && math_is_finite(x)) {  // the exponential may be subnormal, but x times it is not
    let half = math_exp(0.5 * x);
    return x * half * half;
  }
  return x * math_sigmoid(x);
}

// Returns e^(-a*a/2), with the square split so that its upper part is exact (Cody 1969).
fn math_gauss(a: T) -> T {
  let head = round(a * 16.0) * 0.0625;
  return math_exp(-0.5 * head * head) * math_exp(-0.5 * (a - head) * (a + head));
}

// Returns e^(t*t) erfc(t) for 0 <= t, as a polynomial in (t - 3) / (t + 3), divided by 1 + 2 t.
fn math_erfcx(t: T) -> T {
  let u = (t - 3.0) / (t + 3.0);
  var p = 3.2822208752533464e-5;
  p = p * u + 0.00012585881917400737;
  p = p * u - 0.0001274269417978125;
  p = p * u - 0.00078976428094870307;
  p = p * u + 0.0018948129434874113;
  p = p * u + 0.0025336275532421081;
  p = p * u - 0.023771179220786608;
  p = p * u + 0.068307331908205625;
  p = p * u - 0.11927364142776219;
  p = p * u + 0.12964520455357457;
  p = p * u - 0.047562294293724611;
  p = p * u - 0.13562110697845708;
  p = p * u + 1.2530080582687269;
  return p / (1.0 + 2.0 * t);
}

// Returns the standard normal distribution function at -a for a >= 0; it is 0 from 14.5 on.
fn math_normal_tail(a: T) -> T {
  if (a > 14.7) { return 0.0; }
  return 0.5 * math_erfcx(a * 0.70710678118654752) * math_gauss(a);
}

fn math_normal_cdf(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  let tail = math_normal_tail(math_abs(x));
  return select(1.0 - tail, tail, x < 0.0);
}

fn math_gelu(x: T) -> T { return x * math_normal_cdf(x); }

fn math_gelu_slope(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  let a = min(math_abs(x), 14.7);
  let rest =
      math_gauss(a) * (0.5 * math_erfcx(a * 0.70710678118654752) - 0.3989422804014327 * a);
  return select(1.0 - rest, rest, x < 0.0);
}

fn math_gelu_tanh(x: T) -> T {
  return x * math_sigmoid(1.5957691216057308 * (x + 0.044715 * (x * x * x)));
}

fn math_gelu_tanh_slope(x: T) -> T {
  if (math_is_nan(x)) { return x; }
  let a = min(math_abs(x), 24.0);
  let square = a * a;
  let e = math_exp(-1.5957691216057308 * (a + 0.044715 * (square * a)));
  let above = 1.0 + e;
  let step = a * (1.5957691216057308 + 0.21406444881780076 * square);
  return select(1.0 + step * e / above, e * (1.0 - step / above), x < 0.0) / above;
}
