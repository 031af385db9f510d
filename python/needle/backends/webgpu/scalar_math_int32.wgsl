// The functions of elementwise.wgsl for int32, and for int64, which is stored in 32 bits.
// Integers wrap around; an integer divided by zero gives 0.
alias T = i32;
fn load(bits: u32) -> T { return bitcast<i32>(bits); }
fn store(x: T) -> u32 { return bitcast<u32>(x); }

fn math_add(x: T, y: T) -> T { return x + y; }
fn math_subtract(x: T, y: T) -> T { return x - y; }
fn math_multiply(x: T, y: T) -> T { return x * y; }
fn math_negative(x: T) -> T { return 0 - x; }
fn math_abs(x: T) -> T { return select(x, 0 - x, x < 0); }
fn math_sign(x: T) -> T { return select(0, 1, x > 0) - select(0, 1, x < 0); }
fn math_invert(x: T) -> T { return ~x; }
fn math_maximum(x: T, y: T) -> T { return max(x, y); }
fn math_minimum(x: T, y: T) -> T { return min(x, y); }

fn math_floor_divide(x: T, y: T) -> T {
  if (y == 0) { return 0; }
  if (y == -1) { return 0 - x; }  // the smallest integer / -1 wraps
  return x / y - select(0, 1, x % y != 0 && (x < 0) != (y < 0));
}

fn math_remainder(x: T, y: T) -> T {
  if (y == 0 || y == -1) { return 0; }
  let rest = x % y;
  return select(rest, rest + y, rest != 0 && (rest < 0) != (y < 0));
}

fn math_power(base: T, exponent: T) -> T {
  if (exponent < 0) {  // the result truncates to 0, except for bases 1 and -1
    if (base == 1) { return 1; }
    if (base == -1) { return select(-1, 1, exponent % 2 == 0); }
    return 0;
  }
  var x = base;
  var y = exponent;
  var result = 1;
  while (y != 0) {
    if (y % 2 != 0) { result = result * x; }
    x = x * x;
    y = y / 2;
  }
  return result;
}
