// The kernel table of CUDA. A row that is absent stays null, is not exported to Python, and the
// plain body in needle/accelerated serves, made of rows that are here.
#include "kernels.h"

namespace needle::cuda {
namespace {

#define NEEDLE_READY(ROW)       \
  ROW(fill)                     \
  ROW(copy)                     \
  ROW(unary)                    \
  ROW(binary)                   \
  ROW(where)                    \
  ROW(reduce)                   \
  ROW(matmul)                   \
  ROW(relu_grad)                \
  ROW(bias_relu)                \
  ROW(bias_relu_grad)           \
  ROW(gather)                   \
  ROW(scatter)                  \
  ROW(scatter_add)              \
  ROW(one_hot)                  \
  ROW(softmax)                  \
  ROW(log_softmax)              \
  ROW(logsumexp)                \
  ROW(cross_entropy)            \
  ROW(cross_entropy_grad)       \
  ROW(batch_norm)               \
  ROW(batch_norm_grad)          \
  ROW(batch_norm_relu)          \
  ROW(batch_norm_relu_grad)     \
  ROW(batch_norm_add_relu)      \
  ROW(batch_norm_add_relu_grad) \
  ROW(layer_norm)               \
  ROW(layer_norm_grad)          \
  ROW(max_pool2d)               \
  ROW(max_pool2d_grad)          \
  ROW(avg_pool2d)               \
  ROW(avg_pool2d_grad)          \
  ROW(conv2d)                   \
  ROW(conv2d_bias)              \
  ROW(conv2d_relu)              \
  ROW(conv2d_input_grad)        \
  ROW(conv2d_weight_grad)       \
  ROW(argmax)                   \
  ROW(argmin)                   \
  ROW(random)                   \
  ROW(sgd_step)                 \
  ROW(adam_step)

constexpr KernelTable make_table() {
  KernelTable t;
  t.isa = "cuda";
#define NEEDLE_ROW(name) t.name = &name;
  NEEDLE_READY(NEEDLE_ROW)
#undef NEEDLE_ROW
  return t;
}

}  // namespace

const KernelTable& table() {
  static constexpr KernelTable the_table = make_table();
  return the_table;
}

}  // namespace needle::cuda
