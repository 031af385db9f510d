// The setting that chooses conv2d's algorithm: NEEDLE_CONV2D (python/needle/config.py). The kernels
// of every instruction set share it.
#pragma once

namespace needle {

// kWinograd applies wherever its formulas do, even if it is slower.
enum class Conv2dAlgorithm { kAuto, kDirect, kWinograd };

Conv2dAlgorithm conv2d_algorithm();
void select_conv2d_algorithm(Conv2dAlgorithm algorithm);

}  // namespace needle
