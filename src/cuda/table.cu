// The kernel table of CUDA. A row that is absent stays null, is not exported to Python, and the
// plain body in needle/accelerated serves, made of rows that are here.
#include "kernels.h"

namespace needle::cuda {
namespace {

#define NEEDLE_READY(ROW) \
  ROW(fill)               \
  ROW(copy)               \
  ROW(unary)              \
  ROW(binary)             \
  ROW(where)              \
  ROW(reduce)             \
  ROW(matmul)             \
  ROW(relu_grad)          \
  ROW(gather)             \
  ROW(scatter)            \
  ROW(scatter_add)        \
  ROW(one_hot)

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
