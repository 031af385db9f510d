#include "conv2d_algorithm.h"

#include <atomic>

namespace needle {
namespace {

std::atomic<Conv2dAlgorithm> selected{Conv2dAlgorithm::kAuto};

}  // namespace

Conv2dAlgorithm conv2d_algorithm() { return selected.load(std::memory_order_relaxed); }

void select_conv2d_algorithm(Conv2dAlgorithm algorithm) {
  selected.store(algorithm, std::memory_order_relaxed);
}

}  // namespace needle
