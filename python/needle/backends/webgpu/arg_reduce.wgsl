// argmax and argmin write the position of a row's first extreme, or of its first NaN. The backend
// prepends combine(x, y: T) -> T, which returns the extreme of two numbers, or the first NaN.

fn run(i: i32) {
  let at = place_of(i);
  var place = 0;
  var best = load(a[at.x]);
  for (var j = 1; j < P[0].z; j++) {
    let next = combine(best, load(a[at.x + j * P[1].z]));
    if (store(next) != store(best) && !(next == best)) {
      best = next;
      place = j;
    }
  }
  out[at.y] = u32(place);
}
