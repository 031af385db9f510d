#include "kernel_rules.h"

#include <string>

#include "check.h"
#include "view_rules.h"

namespace needle {
namespace {

constexpr std::int64_t kLargestSetting = 1 << 30;  // so that sums of sizes do not overflow

void check_rank(const char* op, const View& v, int ndim) {
  if (v.ndim != ndim) {
    raise_error(std::string(op) + ": expected a view of " + std::to_string(ndim) +
                " dimensions, got " + std::to_string(v.ndim) + "; reshape it");
  }
}

void check_size(const char* op, const View& v, int axis, std::int64_t expected) {
  if (v.shape[axis] != expected) {
    raise_error(std::string(op) + ": axis " + std::to_string(axis) + " must have size " +
                std::to_string(expected) + ", got " + std::to_string(v.shape[axis]) +
                "; pass views whose shapes match");
  }
}

void check_floating(const char* op, const View& v) {
  if (computed(v.dtype) != DType::kFloat32 && v.dtype != DType::kFloat64) {
    raise_error(std::string(op) + ": the dtype must be float32 or float64, got " +
                name_of(v.dtype) + "; convert with copy");
  }
}

// Checks floating views of one shape and dtype.
void check_alike(const char* op, const View& a, const View& b) {
  check_floating(op, a);
  check_same_dtype(op, a, b);
  check_same_shape(op, a, b);
}

// Checks a vector of `n` elements in the dtype in which a normalisation of x computes.
void check_statistic(const char* op, const View& v, std::int64_t n, const View& x) {
  check_dtype(op, v, computed(x.dtype));
  check_rank(op, v, 1);
  check_size(op, v, 0, n);
}

// Checks a vector of `n` elements in the dtype of `like`.
void check_vector(const char* op, const View& v, std::int64_t n, const View& like) {
  check_same_dtype(op, v, like);
  check_rank(op, v, 1);
  check_size(op, v, 0, n);
}

void check_axis(const char* op, const View& a, int axis) {
  if (axis < 0 || axis >= a.ndim) {
    raise_error(std::string(op) + ": axis must be in [0, " + std::to_string(a.ndim) + "), got " +
                std::to_string(axis));
  }
}

// ---- products, softmax, loss --------------------------------------------------------------------

void matmul(In a, In b, Out out) {
  const int n = out.ndim;
  check_same_dtype("matmul", a, out);
  check_same_dtype("matmul", b, out);
  NEEDLE_CHECK(size_of(out.dtype) > 1, "matmul: the operation does not take this dtype");
  NEEDLE_CHECK(n >= 2, "matmul: expected views of at least 2 dimensions, got fewer; reshape them");
  check_rank("matmul", a, n);
  check_rank("matmul", b, n);
  for (int axis = 0; axis < n - 2; ++axis) {
    check_size("matmul", a, axis, out.shape[axis]);
    check_size("matmul", b, axis, out.shape[axis]);
  }
  check_size("matmul", a, n - 2, out.shape[n - 2]);
  check_size("matmul", b, n - 1, out.shape[n - 1]);
  check_size("matmul", b, n - 2, a.shape[n - 1]);
}

void softmax(In a, Out out, int axis) {
  check_alike("softmax", a, out);
  check_axis("softmax", a, axis);
}

void logsumexp(In a, Out out) {
  check_floating("logsumexp", a);
  check_same_dtype("logsumexp", a, out);
  check_reduced_shape("logsumexp", a, out);
}

void check_labels(const char* op, const View& logits, const View& labels) {
  check_floating(op, logits);
  check_rank(op, logits, 2);
  check_dtype(op, labels, DType::kInt64);
  check_rank(op, labels, 1);
  check_size(op, labels, 0, logits.shape[0]);
}

void cross_entropy(In logits, In labels, Out out, double) {
  check_labels("cross_entropy", logits, labels);
  check_vector("cross_entropy", out, logits.shape[0], logits);
}

void cross_entropy_grad(In grad, In logits, In labels, Out out, double) {
  check_labels("cross_entropy_grad", logits, labels);
  check_vector("cross_entropy_grad", grad, logits.shape[0], logits);
  check_alike("cross_entropy_grad", logits, out);
}

// ---- normalisations -----------------------------------------------------------------------------

void check_last_axis(const char* op, const View& x) {
  NEEDLE_CHECK(x.ndim >= 1, std::string(op) + ": x needs an axis, got a 0-d view; reshape it");
}

// Checks that the bias has one value per channel of `out` and that the residual has its shape.
void check_epilogue(const char* op, const View& out, const Epilogue& epilogue) {
  if (epilogue.bias != nullptr) {
    check_last_axis(op, out);
    check_vector(op, *epilogue.bias, out.shape[out.ndim - 1], out);
  }
  if (epilogue.residual != nullptr) check_alike(op, out, *epilogue.residual);
}

void apply_epilogue(In a, Out out, const Epilogue& epilogue) {
  check_alike("apply_epilogue", a, out);
  check_epilogue("apply_epilogue", out, epilogue);
  NEEDLE_CHECK(epilogue.bias != nullptr && epilogue.residual == nullptr && epilogue.relu,
               "apply_epilogue: the epilogue must be a bias and relu; use add and maximum");
}

void relu_grad(In grad, In y, Out out, MaybeOut bias_grad) {
  check_alike("relu_grad", y, grad);
  check_alike("relu_grad", y, out);
  if (bias_grad == nullptr) return;
  check_last_axis("relu_grad", y);
  check_vector("relu_grad", *bias_grad, y.shape[y.ndim - 1], y);
}

void batch_norm(In x, In weight, In bias, Out out, Out mean, Out var, double,
                const Epilogue& epilogue) {
  const char* op = "batch_norm";
  check_last_axis(op, x);
  check_alike(op, x, out);
  for (const View* v : {&weight, &bias, &mean, &var}) {
    check_statistic(op, *v, x.shape[x.ndim - 1], x);
  }
  check_epilogue(op, out, epilogue);
  NEEDLE_CHECK(epilogue.bias == nullptr,
               "batch_norm: the epilogue must have no bias; the operation has its own");
  NEEDLE_CHECK(epilogue.residual == nullptr || epilogue.relu,
               "batch_norm: a residual must be followed by relu; add it to the result");
}

void batch_norm_grad(In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad,
                     Out bias_grad, double, const EpilogueGrad& epilogue) {
  const char* op = "batch_norm_grad";
  check_last_axis(op, x);
  check_alike(op, x, grad);
  check_alike(op, x, x_grad);
  for (const View* v : {&weight, &mean, &var, &weight_grad, &bias_grad, epilogue.bias}) {
    if (v != nullptr) check_statistic(op, *v, x.shape[x.ndim - 1], x);
  }
  for (const View* v : {epilogue.result, epilogue.residual_grad}) {
    if (v != nullptr) check_alike(op, x, *v);
  }
  const bool residual = epilogue.residual_grad != nullptr;
  NEEDLE_CHECK((epilogue.result != nullptr) == residual && !(residual && epilogue.bias != nullptr),
               "batch_norm_grad: the epilogue must have the bias, or the result and the "
               "residual's gradient, or nothing");
}

// Checks a mean or variance, which has the shape of x except that its last size is 1.
void check_row_statistics(const char* op, const View& x, const View& statistic) {
  check_same_dtype(op, x, statistic);
  check_rank(op, statistic, x.ndim);
  for (int axis = 0; axis < x.ndim - 1; ++axis) check_size(op, statistic, axis, x.shape[axis]);
  check_size(op, statistic, x.ndim - 1, 1);
}

void layer_norm(In x, In weight, In bias, Out out, Out mean, Out var, double) {
  const char* op = "layer_norm";
  check_last_axis(op, x);
  check_alike(op, x, out);
  for (const View* v : {&weight, &bias}) check_vector(op, *v, x.shape[x.ndim - 1], x);
  for (const View* v : {&mean, &var}) check_row_statistics(op, x, *v);
}

void layer_norm_grad(In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad,
                     Out bias_grad, double) {
  const char* op = "layer_norm_grad";
  check_last_axis(op, x);
  check_alike(op, x, grad);
  check_alike(op, x, x_grad);
  for (const View* v : {&weight, &weight_grad, &bias_grad}) {
    check_vector(op, *v, x.shape[x.ndim - 1], x);
  }
  for (const View* v : {&mean, &var}) check_row_statistics(op, x, *v);
}

// ---- windows over images (N, H, W, C) -----------------------------------------------------------

void check_setting(const char* op, const Pair& value, std::int64_t least) {
  if (value.h < least || value.w < least || value.h > kLargestSetting ||
      value.w > kLargestSetting) {
    raise_error(std::string(op) +
                ": kernel, stride and dilation must be at least 1 and padding at " +
                "least 0, got " + std::to_string(value.h) + ", " + std::to_string(value.w));
  }
}

struct Windows {
  Pair kernel, stride, padding, dilation;
};

// Checks that `out` has one pixel per window of `image`. Both have rank 4 and the same dtype.
void check_windows(const char* op, const View& image, const View& out, const Windows& w) {
  check_floating(op, image);
  check_same_dtype(op, image, out);
  check_rank(op, image, 4);
  check_rank(op, out, 4);
  check_setting(op, w.kernel, 1);
  check_setting(op, w.stride, 1);
  check_setting(op, w.dilation, 1);
  check_setting(op, w.padding, 0);
  check_size(op, out, 0, image.shape[0]);
  const auto positions = [](std::int64_t size, std::int64_t kernel, std::int64_t stride,
                            std::int64_t padding, std::int64_t dilation) {
    const std::int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
  };
  check_size(op, out, 1,
             positions(image.shape[1], w.kernel.h, w.stride.h, w.padding.h, w.dilation.h));
  check_size(op, out, 2,
             positions(image.shape[2], w.kernel.w, w.stride.w, w.padding.w, w.dilation.w));
}

void check_pool(const char* op, const View& image, const View& out, const Pool2dParams& p) {
  check_windows(op, image, out, {p.kernel, p.stride, p.padding, {1, 1}});
  check_size(op, out, 3, image.shape[3]);
}

void max_pool2d(In x, Out out, const Pool2dParams& params) {
  check_pool("max_pool2d", x, out, params);
}
void max_pool2d_grad(In grad, In x, Out x_grad, const Pool2dParams& params) {
  check_pool("max_pool2d_grad", x, grad, params);
  check_alike("max_pool2d_grad", x, x_grad);
}
void avg_pool2d(In x, Out out, const Pool2dParams& params) {
  check_pool("avg_pool2d", x, out, params);
}
void avg_pool2d_grad(In grad, Out x_grad, const Pool2dParams& params) {
  check_pool("avg_pool2d_grad", x_grad, grad, params);
}

void check_convolution(const char* op, const View& x, const View& weight, const View& out,
                       const Geometry& geometry) {
  check_rank(op, weight, 4);
  check_same_dtype(op, x, weight);
  check_windows(
      op, x, out,
      {{weight.shape[0], weight.shape[1]}, geometry.stride, geometry.padding, geometry.dilation});
  NEEDLE_CHECK(
      geometry.groups >= 1 && geometry.groups <= kLargestSetting,
      std::string(op) + ": groups must be at least 1, got " + std::to_string(geometry.groups));
  NEEDLE_CHECK(weight.shape[3] % geometry.groups == 0,
               std::string(op) + ": groups must divide the output channels, got " +
                   std::to_string(geometry.groups) + " for " + std::to_string(weight.shape[3]));
  NEEDLE_CHECK(x.shape[3] % geometry.groups == 0,
               std::string(op) + ": groups must divide the input channels, got " +
                   std::to_string(geometry.groups) + " for " + std::to_string(x.shape[3]));
  check_size(op, weight, 2, x.shape[3] / geometry.groups);
  check_size(op, out, 3, weight.shape[3]);
}

void conv2d(In x, In weight, Out out, const Geometry& geometry, const Epilogue& epilogue) {
  check_convolution("conv2d", x, weight, out, geometry);
  check_epilogue("conv2d", out, epilogue);
  NEEDLE_CHECK(epilogue.residual == nullptr,
               "conv2d: the epilogue must have no residual; add it to the result");
}
void conv2d_input_grad(In grad, In weight, Out x_grad, const Geometry& geometry) {
  check_convolution("conv2d_input_grad", x_grad, weight, grad, geometry);
}
void conv2d_weight_grad(In grad, In x, Out weight_grad, const Geometry& geometry) {
  check_convolution("conv2d_weight_grad", x, weight_grad, grad, geometry);
}

// ---- positions and steps ------------------------------------------------------------------------

void one_hot(In index, Out out) {
  check_dtype("one_hot", index, DType::kInt64);
  check_rank("one_hot", index, 1);
  check_rank("one_hot", out, 2);
  check_size("one_hot", out, 0, index.shape[0]);
}

void arg_reduce(In a, Out out, int axis) {
  const char* op = "argmax/argmin";
  check_dtype(op, out, DType::kInt64);
  check_rank(op, out, a.ndim);
  check_axis(op, a, axis);
  for (int i = 0; i < a.ndim; ++i) check_size(op, out, i, i == axis ? 1 : a.shape[i]);
  NEEDLE_CHECK(a.shape[axis] > 0 || size_of(out) == 0,
               "argmax/argmin: the axis must not be empty; an empty axis has no extreme");
}

void random(RandomOp, Out out, const RandomParams&) { check_floating("random", out); }

// Checks one contiguous view per parameter, with the parameter's shape and dtype.
void check_step(const char* op, Views params, Views others) {
  NEEDLE_CHECK(others.size() == params.size(),
               std::string(op) + ": expected one view for each parameter, got " +
                   std::to_string(others.size()) + " for " + std::to_string(params.size()));
  for (std::size_t i = 0; i < params.size(); ++i) {
    check_alike(op, params[i], others[i]);
    check_same_dtype(op, params[0], params[i]);
    NEEDLE_CHECK(is_compact(params[i]) && is_compact(others[i]),
                 std::string(op) + ": the views must be compact; copy them first");
  }
}

void sgd_step(Views params, Views grads, Views velocities, Views outs, const SgdParams&) {
  check_step("sgd_step", params, grads);
  check_step("sgd_step", params, outs);
  if (!velocities.empty()) check_step("sgd_step", params, velocities);
}

void adam_step(Views params, Views grads, Views firsts, Views seconds, Views outs,
               const AdamParams&) {
  for (const Views& others : {grads, firsts, seconds, outs}) {
    check_step("adam_step", params, others);
  }
}

KernelTable make_rules() {
  KernelTable rules;
  rules.relu_grad = relu_grad;
  rules.apply_epilogue = apply_epilogue;
  rules.matmul = matmul;
  rules.softmax = rules.log_softmax = softmax;
  rules.logsumexp = logsumexp;
  rules.cross_entropy = cross_entropy;
  rules.cross_entropy_grad = cross_entropy_grad;
  rules.batch_norm = batch_norm;
  rules.batch_norm_grad = batch_norm_grad;
  rules.layer_norm = layer_norm;
  rules.layer_norm_grad = layer_norm_grad;
  rules.max_pool2d = max_pool2d;
  rules.max_pool2d_grad = max_pool2d_grad;
  rules.avg_pool2d = avg_pool2d;
  rules.avg_pool2d_grad = avg_pool2d_grad;
  rules.conv2d = conv2d;
  rules.conv2d_input_grad = conv2d_input_grad;
  rules.conv2d_weight_grad = conv2d_weight_grad;
  rules.one_hot = one_hot;
  rules.argmax = rules.argmin = arg_reduce;
  rules.random = random;
  rules.sgd_step = sgd_step;
  rules.adam_step = adam_step;
  return rules;
}

}  // namespace

const KernelTable& kernel_rules() {
  static const KernelTable rules = make_rules();
  return rules;
}

}  // namespace needle
