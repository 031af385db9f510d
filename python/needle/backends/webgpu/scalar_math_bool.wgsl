// The functions of elementwise.wgsl for bool, a 32-bit word that is 0 or 1.
alias T = u32;
fn load(bits: u32) -> T { return bits; }
fn store(x: T) -> u32 { return x; }

fn math_invert(x: T) -> T { return x ^ 1u; }
fn math_maximum(x: T, y: T) -> T { return max(x, y); }
fn math_minimum(x: T, y: T) -> T { return min(x, y); }
