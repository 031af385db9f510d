// The maximum of each window, for pool2d.wgsl.
fn start() -> f32 { return -math_infinity(); }
fn combine(x: f32, best: f32) -> f32 { return math_maximum(x, best); }
fn finish(best: f32) -> f32 { return best; }
