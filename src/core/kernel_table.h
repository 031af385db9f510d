// Trail 9 of 30: the interface of a backend in C++: one row per function.
// Next: src/core/elementwise_ops.h

// The kernel table: one row for each function of the backend interface
// (python/needle/backends/base.py; same names, same argument order, same promises). Every target
// (an instruction set of the CPU, CUDA) defines all rows and fills one KernelTable with them.
#pragma once

#include <cstdint>
#include <span>

#include "random_ops.h"  // enum class RandomOp
#include "reduce_ops.h"  // enum class ReduceOp
#include "view.h"

namespace needle {

// Defined in elementwise_ops.h, which only the files that implement or name the operations include,
// so that a new row there recompiles no other file.
enum class UnaryOp : std::uint8_t;
enum class BinaryOp : std::uint8_t;

struct Pair {
  std::int64_t h, w;
};

// How the windows of a convolution lie on its input (needle.shapes.Geometry).
struct Geometry {
  Pair stride, padding, dilation;
  std::int64_t groups;
};

// What a kernel does to each result before storing it (needle.backends.base.Epilogue). It adds the
// channel's bias, then the element of the residual, and then applies ReLU. A null pointer leaves
// out its step.
struct Epilogue {
  const View* bias = nullptr;
  const View* residual = nullptr;
  bool relu = false;
};

// What the gradient of an epilogue needs (needle.backends.base.EpilogueGrad). All pointers are null
// if there is no epilogue.
struct EpilogueGrad {
  const View* bias = nullptr;           // ReLU: recomputes the result with this bias
  const View* result = nullptr;         // residual and ReLU: the result of the forward pass
  const View* residual_grad = nullptr;  // and where to write the residual's gradient
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
using Out = const View&;       // the view is const, the memory it shows is written
using MaybeOut = const View*;  // null where Python passes None

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
  ROW(apply_epilogue, (In a, Out out, const Epilogue& epilogue))                                \
  ROW(relu_grad, (In grad, In y, Out out, MaybeOut bias_grad))                                  \
  ROW(softmax, (In a, Out out, int axis))                                                       \
  ROW(log_softmax, (In a, Out out, int axis))                                                   \
  ROW(logsumexp, (In a, Out out))                                                               \
  ROW(cross_entropy, (In logits, In labels, Out out, double smoothing))                         \
  ROW(cross_entropy_grad, (In grad, In logits, In labels, Out out, double smoothing))           \
  ROW(batch_norm, (In x, In weight, In bias, Out out, Out mean, Out var, double eps,            \
                   const Epilogue& epilogue))                                                   \
  ROW(batch_norm_grad, (In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad, \
                        Out bias_grad, double eps, const EpilogueGrad& epilogue))               \
  ROW(layer_norm, (In x, In weight, In bias, Out out, Out mean, Out var, double eps))           \
  ROW(layer_norm_grad, (In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad, \
                        Out bias_grad, double eps))                                             \
  ROW(max_pool2d, (In x, Out out, const Pool2dParams& params))                                  \
  ROW(max_pool2d_grad, (In grad, In x, Out x_grad, const Pool2dParams& params))                 \
  ROW(avg_pool2d, (In x, Out out, const Pool2dParams& params))                                  \
  ROW(avg_pool2d_grad, (In grad, Out x_grad, const Pool2dParams& params))                       \
  ROW(conv2d, (In x, In weight, Out out, const Geometry& geometry, const Epilogue& epilogue))   \
  ROW(conv2d_input_grad, (In grad, In weight, Out x_grad, const Geometry& geometry))            \
  ROW(conv2d_weight_grad, (In grad, In x, Out weight_grad, const Geometry& geometry))           \
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
