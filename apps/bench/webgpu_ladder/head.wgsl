// The common part of all steps: the bindings of out = a b, and access to matrix elements.

struct Product {
  rows: u32,     // of a and out
  depth: u32,    // columns of a, rows of b
  columns: u32,  // of b and out
  a_row: u32, a_column: u32,  // elements of memory between neighbouring rows, and columns, of a
  b_row: u32, b_column: u32,
}

@group(0) @binding(0) var<storage, read> size: Product;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<storage, read_write> a: array<f32>;
@group(0) @binding(3) var<storage, read_write> b: array<f32>;
@group(0) @binding(4) var<storage, read_write> reads: array<atomic<u32>>;

const SIDE = 8u;  // a workgroup has SIDE x SIDE threads
const EACH = 4u;  // registers.wgsl: a thread computes EACH x EACH results

fn a_at(row: u32, k: u32) -> f32 {
  if (COUNTED) { atomicAdd(&reads[0], 1u); }
  return a[row * size.a_row + k * size.a_column];
}

fn b_at(k: u32, column: u32) -> f32 {
  if (COUNTED) { atomicAdd(&reads[0], 1u); }
  return b[k * size.b_row + column * size.b_column];
}

fn put(row: u32, column: u32, value: f32) { out[row * size.columns + column] = value; }
