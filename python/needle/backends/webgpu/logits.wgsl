// Kernels with one thread per row of logits, with the functions of row_exp.wgsl. a: logits, b:
// labels.
// P[0] = (N, ..., C, workgroups per row), P[1] = (offset of logits, of labels, stride of logits
// along C, of out along C), P[2] = strides along N of (logits, labels, out, grad), P[3] = (offset
// of out, of grad, 1 - smoothing, smoothing / C as words).
fn logit(i: i32, j: i32) -> T { return load(a[P[1].x + i * P[2].x + j * P[1].z]); }
