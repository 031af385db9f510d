// Which algorithm conv2d uses where it has a choice: NEEDLE_CONV2D (python/needle/config.py).
// The kernels of every instruction set ask here.
#pragma once

namespace needle {

// kWinograd: wherever its formulas hold, also where they do not pay.
enum class Conv2dAlgorithm { kAuto, kDirect, kWinograd };

Conv2dAlgorithm conv2d_algorithm();
void select_conv2d_algorithm(Conv2dAlgorithm algorithm);

}  // namespace needle
