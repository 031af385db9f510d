// Fills the kernel table of one instruction set.
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {

#define NEEDLE_QUOTE_(text) #text
#define NEEDLE_QUOTE(text) NEEDLE_QUOTE_(text)

constinit const KernelTable table = {NEEDLE_QUOTE(NEEDLE_ISA),
#define NEEDLE_ROW(name, arguments) &name,
                                     NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW
};

}  // namespace needle::cpu::NEEDLE_ISA
