// The input gradient of batch_norm and layer_norm. a: gradient, b: input, c: weight, d: mean, e:
// variance, f: the sums of norm_sums.wgsl, each P[3].x long. Flag 1: the sums exclude the weight,
// which is constant over the elements of a mean.

fn run(i: i32) {
  let at = result_places(i);
  let deviation = sqrt(load(e[at.far.z]) + eps());
  let normalised = (load(b[at.near.w]) - load(d[at.far.y])) / deviation;
  let weight = load(c[at.far.x]);
  let share = (load(f[at.far.w]) + normalised * load(f[at.far.w + P[3].x])) / f32(P[1].x);
  let all = select(share, share * weight, (P[3].z & 1) != 0);
  out[at.near.y] = store((load(a[at.near.z]) * weight - all) / deviation);
}
