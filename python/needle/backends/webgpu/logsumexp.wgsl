// logsumexp as a reduction of reduce.wgsl. A lane keeps the maximum of its elements and the sum of
// exp(element - maximum), which cannot overflow. The identity is -infinity.
alias Part = vec2<f32>;

fn part_of(bits: u32) -> Part { return vec2(load(bits), select(1.0, 0.0, bits == 0xff800000u)); }

fn scaled(x: Part, highest: T) -> T {
  // The difference of equal infinities would be NaN.
  if (bitcast<u32>(x.x) == bitcast<u32>(highest)) { return x.y; }
  return x.y * math_exp(x.x - highest);
}

fn combine(x: Part, y: Part) -> Part {
  let highest = math_maximum(x.x, y.x);
  return vec2(highest, scaled(x, highest) + scaled(y, highest));
}

fn word_of(x: Part) -> u32 { return store(math_log(x.y) + x.x); }
