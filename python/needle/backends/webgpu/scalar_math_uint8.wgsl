// The functions of elementwise.wgsl for uint8, a 32-bit word whose upper 24 bits stay 0.
alias T = u32;
fn load(bits: u32) -> T { return bits; }
fn store(x: T) -> u32 { return x; }

fn math_add(x: T, y: T) -> T { return (x + y) & 255u; }
fn math_subtract(x: T, y: T) -> T { return (x - y) & 255u; }
fn math_multiply(x: T, y: T) -> T { return (x * y) & 255u; }
fn math_negative(x: T) -> T { return (0u - x) & 255u; }
fn math_abs(x: T) -> T { return x; }
fn math_sign(x: T) -> T { return min(x, 1u); }
fn math_invert(x: T) -> T { return ~x & 255u; }
fn math_maximum(x: T, y: T) -> T { return max(x, y); }
fn math_minimum(x: T, y: T) -> T { return min(x, y); }

fn math_floor_divide(x: T, y: T) -> T {
  if (y == 0u) { return 0u; }
  return x / y;
}

fn math_remainder(x: T, y: T) -> T {
  if (y == 0u) { return 0u; }
  return x % y;
}

fn math_power(base: T, exponent: T) -> T {
  var x = base;
  var y = exponent;
  var result = 1u;
  while (y != 0u) {
    if (y % 2u != 0u) { result = (result * x) & 255u; }
    x = (x * x) & 255u;
    y = y / 2u;
  }
  return result;
}
