// The rows of src/core/elementwise_ops.h, and the kernel of fill, copy, unary, binary and where.
// The backend prepends a function compute(a, b, c: u32) -> u32, generated from a row. A test
// compares the rows with those of C++. A driver may evaluate x != y to false if one is NaN, so the
// rows write !(x == y).

//  ROW(name, domain, result, formula of x)
//  ROW(exp, kFloat, kSame, math_exp(x))
//  ROW(expm1, kFloat, kSame, math_expm1(x))
//  ROW(log, kFloat, kSame, math_log(x))
//  ROW(log1p, kFloat, kSame, math_log1p(x))
//  ROW(log2, kFloat, kSame, math_log2(x))
//  ROW(log10, kFloat, kSame, math_log10(x))
//  ROW(sqrt, kFloat, kSame, sqrt(x))
//  ROW(sin, kFloat, kSame, math_sin(x))
//  ROW(cos, kFloat, kSame, math_cos(x))
//  ROW(tan, kFloat, kSame, math_tan(x))
//  ROW(asin, kFloat, kSame, math_asin(x))
//  ROW(acos, kFloat, kSame, math_acos(x))
//  ROW(atan, kFloat, kSame, math_atan(x))
//  ROW(sinh, kFloat, kSame, math_sinh(x))
//  ROW(cosh, kFloat, kSame, math_cosh(x))
//  ROW(tanh, kFloat, kSame, math_tanh(x))
//  ROW(asinh, kFloat, kSame, math_asinh(x))
//  ROW(acosh, kFloat, kSame, math_acosh(x))
//  ROW(atanh, kFloat, kSame, math_atanh(x))
//  ROW(erf, kFloat, kSame, math_erf(x))
//  ROW(sigmoid, kFloat, kSame, math_sigmoid(x))
//  ROW(log_sigmoid, kFloat, kSame, math_log_sigmoid(x))
//  ROW(softplus, kFloat, kSame, math_softplus(x))
//  ROW(silu, kFloat, kSame, math_silu(x))
//  ROW(normal_cdf, kFloat, kSame, math_normal_cdf(x))
//  ROW(gelu, kFloat, kSame, math_gelu(x))
//  ROW(gelu_tanh, kFloat, kSame, math_gelu_tanh(x))
//  ROW(gelu_slope, kFloat, kSame, math_gelu_slope(x))
//  ROW(gelu_tanh_slope, kFloat, kSame, math_gelu_tanh_slope(x))
//  ROW(floor, kFloat, kSame, floor(x))
//  ROW(ceil, kFloat, kSame, ceil(x))
//  ROW(trunc, kFloat, kSame, trunc(x))
//  ROW(round, kFloat, kSame, round(x))
//  ROW(negative, kNumber, kSame, math_negative(x))
//  ROW(abs, kNumber, kSame, math_abs(x))
//  ROW(sign, kNumber, kSame, math_sign(x))
//  ROW(square, kNumber, kSame, math_multiply(x, x))
//  ROW(isnan, kFloat, kBool, math_is_nan(x))
//  ROW(isinf, kFloat, kBool, math_is_infinite(x))
//  ROW(isfinite, kFloat, kBool, math_is_finite(x))
//  ROW(logical_not, kAny, kBool, x == T(0))
//  ROW(bitwise_invert, kInteger, kSame, math_invert(x))

//  ROW(name, domain, result, formula of x and y)
//  ROW(add, kNumber, kSame, math_add(x, y))
//  ROW(subtract, kNumber, kSame, math_subtract(x, y))
//  ROW(multiply, kNumber, kSame, math_multiply(x, y))
//  ROW(divide, kFloat, kSame, x / y)
//  ROW(floor_divide, kNumber, kSame, math_floor_divide(x, y))
//  ROW(remainder, kNumber, kSame, math_remainder(x, y))
//  ROW(power, kNumber, kSame, math_power(x, y))
//  ROW(maximum, kNumber, kSame, math_maximum(x, y))
//  ROW(minimum, kNumber, kSame, math_minimum(x, y))
//  ROW(atan2, kFloat, kSame, math_atan2(x, y))
//  ROW(bitwise_and, kInteger, kSame, x & y)
//  ROW(bitwise_or, kInteger, kSame, x | y)
//  ROW(bitwise_xor, kInteger, kSame, x ^ y)
//  ROW(logical_and, kAny, kBool, (!(x == T(0))) & (!(y == T(0))))
//  ROW(logical_or, kAny, kBool, (!(x == T(0))) | (!(y == T(0))))
//  ROW(logical_xor, kAny, kBool, (!(x == T(0))) != (!(y == T(0))))
//  ROW(equal, kAny, kBool, x == y)
//  ROW(not_equal, kAny, kBool, !(x == y))
//  ROW(less, kAny, kBool, x < y)
//  ROW(less_equal, kAny, kBool, x <= y)
//  ROW(greater, kAny, kBool, x > y)
//  ROW(greater_equal, kAny, kBool, x >= y)

@group(0) @binding(0) var<storage, read> P: array<vec4<i32>>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read_write> a: array<u32>;
@group(0) @binding(3) var<storage, read_write> b: array<u32>;
@group(0) @binding(4) var<storage, read_write> c: array<u32>;

// P[0] = (elements, axes, bit mask of scalar operands, workgroups per row), P[1] = offsets of (out,
// a, b, c), P[2] = the words of scalars, then for each axis its size and its strides.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
  let i = i32((group.y * u32(P[0].w) + group.x) * 256u + thread);
  if (i >= P[0].x) { return; }
  var at = P[1];
  var rest = i;
  for (var axis = P[0].y - 1; axis > 0; axis--) {
    let next = rest / P[3 + 2 * axis].x;
    at += (rest - next * P[3 + 2 * axis].x) * P[4 + 2 * axis];
    rest = next;
  }
  at += rest * P[4];
  let scalar = P[0].z;
  var x = u32(P[2].y);
  var y = u32(P[2].z);
  var z = u32(P[2].w);
  if ((scalar & 2) == 0) { x = a[at.y]; }
  if ((scalar & 4) == 0) { y = b[at.z]; }
  if ((scalar & 8) == 0) { z = c[at.w]; }
  out[at.x] = compute(x, y, z);
}
