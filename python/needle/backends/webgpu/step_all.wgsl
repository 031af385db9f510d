// An optimiser's step for many parameters. ``sources.step`` generates the bindings and the function
// step, which calls stepped, a rule such as that of sgd_step.wgsl. A workgroup updates elements of
// a single parameter.

// P[0] = (parameters, workgroups per row, ...), P[1] to P[3] = settings of the rule, then for each
// parameter (its first workgroup, elements, offsets of parameter and gradient) and (offsets of the
// moments and of the result, ...).
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let block = i32(group.y) * P[0].y + i32(group.x);
  var which = 0;
  while (which + 1 < P[0].x && block >= P[6 + 2 * which].x) { which++; }
  let place = P[4 + 2 * which];
  let i = (block - place.x) * 256 + i32(local);
  if (i < place.y) { step(which, i + vec2(place.z, place.w), i + P[5 + 2 * which].xyz); }
}
