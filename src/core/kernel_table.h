// The kernel table: one row a function of the backend interface (python/needle/backends/base.py,
// same names, same argument order, same promises). A backend fills one KernelTable per target;
// select_table() merges them, a null row inheriting from the next lower instruction set. A row that
// stays null is not exported to Python, and the plain body in needle/accelerated serves instead.
#pragma once

#include <cstdint>
#include <span>

#include "elementwise_ops.h"  // enum class UnaryOp, BinaryOp
#include "random_ops.h"       // enum class RandomOp
#include "reduce_ops.h"       // enum class ReduceOp
#include "view.h"

namespace needle {

struct Pair {
  std::int64_t h, w;
};

struct Conv2dParams {
  Pair stride, padding, dilation;
  std::int64_t groups;
};

struct Pool2dParams {
  Pair kernel, stride, padding;
};

struct SgdParams {
  double lr, momentum, dampening, weight_decay;
  bool nesterov;
};

struct AdamParams {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;
  std::int64_t step;
};

struct RandomParams {
  std::uint64_t seed;
  std::int64_t draw;  // modulo 2**32
  double a, b;
};

using Views = std::span<const View>;
using In = const View&;
using Out = const View&;  // the view is const, the memory it shows is written

// A scalar operand arrives as a View of stride 0 (is_scalar) on a value of the operation's dtype.
//   ROW(name, (argument types))
#define NEEDLE_KERNELS(ROW)                                                                     \
  /* required */                                                                                \
  ROW(fill, (Out out, double value, std::int64_t integer))                                      \
  ROW(copy, (In a, Out out))                                                                    \
  ROW(unary, (UnaryOp op, In a, Out out))                                                       \
  ROW(binary, (BinaryOp op, In a, In b, Out out))                                               \
  ROW(where, (In condition, In a, In b, Out out))                                               \
  ROW(reduce, (ReduceOp op, In a, Out out))                                                     \
  ROW(matmul, (In a, In b, Out out))                                                            \
  /* optional */                                                                                \
  ROW(relu_grad, (In grad, In y, Out out))                                                      \
  ROW(bias_relu, (In a, In bias, Out out))                                                      \
  ROW(bias_relu_grad, (In grad, In y, Out a_grad, Out bias_grad))                               \
  ROW(softmax, (In a, Out out, int axis))                                                       \
  ROW(log_softmax, (In a, Out out, int axis))                                                   \
  ROW(logsumexp, (In a, Out out))                                                               \
  ROW(cross_entropy, (In logits, In labels, Out out, double smoothing))                         \
  ROW(cross_entropy_grad, (In grad, In logits, In labels, Out out, double smoothing))           \
  ROW(batch_norm, (In x, In weight, In bias, Out out, Out mean, Out var, double eps))           \
  ROW(batch_norm_grad, (In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad, \
                        Out bias_grad, double eps))                                             \
  ROW(batch_norm_relu, (In x, In weight, In bias, Out out, Out mean, Out var, double eps))      \
  ROW(batch_norm_relu_grad, (In grad, In x, In weight, In bias, In mean, In var, Out x_grad,    \
                             Out weight_grad, Out bias_grad, double eps))                       \
  ROW(batch_norm_add_relu,                                                                      \
      (In x, In weight, In bias, In added, Out out, Out mean, Out var, double eps))             \
  ROW(batch_norm_add_relu_grad, (In grad, In y, In x, In weight, In mean, In var, Out x_grad,   \
                                 Out weight_grad, Out bias_grad, Out added_grad, double eps))   \
  ROW(layer_norm, (In x, In weight, In bias, Out out, Out mean, Out var, double eps))           \
  ROW(layer_norm_grad, (In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad, \
                        Out bias_grad, double eps))                                             \
  ROW(max_pool2d, (In x, Out out, const Pool2dParams& params))                                  \
  ROW(max_pool2d_grad, (In grad, In x, Out x_grad, const Pool2dParams& params))                 \
  ROW(avg_pool2d, (In x, Out out, const Pool2dParams& params))                                  \
  ROW(avg_pool2d_grad, (In grad, Out x_grad, const Pool2dParams& params))                       \
  ROW(conv2d, (In x, In weight, Out out, const Conv2dParams& params))                           \
  ROW(conv2d_bias, (In x, In weight, In bias, Out out, const Conv2dParams& params))             \
  ROW(conv2d_relu, (In x, In weight, In bias, Out out, const Conv2dParams& params))             \
  ROW(conv2d_input_grad, (In grad, In weight, Out x_grad, const Conv2dParams& params))          \
  ROW(conv2d_weight_grad, (In grad, In x, Out weight_grad, const Conv2dParams& params))         \
  ROW(gather, (In a, In index, Out out))                                                        \
  ROW(scatter, (In a, In index, Out out))                                                       \
  ROW(scatter_add, (In a, In index, Out out))                                                   \
  ROW(one_hot, (In index, Out out))                                                             \
  ROW(argmax, (In a, Out out, int axis))                                                        \
  ROW(argmin, (In a, Out out, int axis))                                                        \
  ROW(random, (RandomOp op, Out out, const RandomParams& settings))                             \
  ROW(sgd_step,                                                                                 \
      (Views params, Views grads, Views velocities, Views outs, const SgdParams& settings))     \
  ROW(adam_step, (Views params, Views grads, Views firsts, Views seconds, Views outs,           \
                  const AdamParams& settings))

struct KernelTable {
  const char* isa = nullptr;
#define NEEDLE_ROW(name, arguments) void(*name) arguments = nullptr;
  NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW
};

}  // namespace needle
