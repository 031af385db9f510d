// Fills the kernel table of one instruction set. Every row is here once its family file exists:
// a line of NEEDLE_READY names it (a row that is absent stays null and is not exported).
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

#define NEEDLE_READY(ROW)       \
  ROW(fill)                     \
  ROW(copy)                     \
  ROW(unary)                    \
  ROW(binary)                   \
  ROW(where)                    \
  ROW(reduce)                   \
  ROW(gather)                   \
  ROW(scatter)                  \
  ROW(scatter_add)              \
  ROW(matmul)                   \
  ROW(conv2d)                   \
  ROW(conv2d_bias)              \
  ROW(conv2d_relu)              \
  ROW(conv2d_input_grad)        \
  ROW(conv2d_weight_grad)       \
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
  ROW(relu_grad)                \
  ROW(bias_relu)                \
  ROW(bias_relu_grad)           \
  ROW(softmax)                  \
  ROW(log_softmax)              \
  ROW(logsumexp)                \
  ROW(cross_entropy)            \
  ROW(cross_entropy_grad)       \
  ROW(sgd_step)                 \
  ROW(adam_step)                \
  ROW(argmax)                   \
  ROW(argmin)                   \
  ROW(random)                   \
  ROW(one_hot)

#define NEEDLE_QUOTE_(text) #text
#define NEEDLE_QUOTE(text) NEEDLE_QUOTE_(text)

constexpr KernelTable make_table() {
  KernelTable t;
  t.isa = NEEDLE_QUOTE(NEEDLE_ISA);
#define NEEDLE_ROW(name) t.name = &name;
  NEEDLE_READY(NEEDLE_ROW)
#undef NEEDLE_ROW
  return t;
}

}  // namespace

constinit const KernelTable table = make_table();

}  // namespace needle::cpu::NEEDLE_ISA
