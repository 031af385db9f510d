// Functions for the largest element of a row of a, and for the sum of its exponentials. P[0].z:
// elements of a row, P[1].z: their stride.
fn maximum_of(at: i32) -> T {
  var best = -math_infinity();
  for (var j = 0; j < P[0].z; j++) { best = math_maximum(load(a[at + j * P[1].z]), best); }
  return best;
}

fn sum_of_exp(at: i32, shift: T) -> T {
  var total = 0.0;
  for (var j = 0; j < P[0].z; j++) { total += math_exp(load(a[at + j * P[1].z]) - shift); }
  return total;
}
