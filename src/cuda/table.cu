// The kernel table of CUDA.
#include "kernels.h"

namespace needle::cuda {

const KernelTable& table() {
  static constexpr KernelTable the_table = {"cuda",
#define NEEDLE_ROW(name, arguments) &name,
                                            NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW
  };
  return the_table;
}

}  // namespace needle::cuda
