#include "sm90.h"

#include <atomic>

#include "../device.h"

namespace needle::cuda {
namespace {

std::atomic<bool> enabled{false};

}  // namespace

void enable_sm90(bool on) { enabled.store(on, std::memory_order_relaxed); }

bool uses_sm90([[maybe_unused]] int device) {
#ifdef NEEDLE_SM90  // among the targets
  return enabled.load(std::memory_order_relaxed) && capability(device) == 9;
#else
  return false;
#endif
}

}  // namespace needle::cuda
