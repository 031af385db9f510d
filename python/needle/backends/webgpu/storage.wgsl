// Conversions between dtypes for elementwise.wgsl. Every element is stored in a 32-bit word, so
// that strided writes never share a word.

fn float_to_int32(x: f32) -> i32 {
  let magnitude = bitcast<u32>(x) & 0x7fffffffu;
  if (magnitude > 0x7f800000u) { return 0; }  // NaN
  if (magnitude >= 0x4f000000u) { return select(-2147483647 - 1, 2147483647, x > 0.0); }
  return i32(x);
}

fn to_bool(bits: u32) -> u32 { return select(0u, 1u, bits != 0u); }
fn float_to_bool(bits: u32) -> u32 { return to_bool(bits & 0x7fffffffu); }
