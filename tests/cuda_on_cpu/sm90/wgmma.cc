// Warpgroup MMA of sm_90 on the CPU: asynchronous products, which may read their operands early or
// late, and the layout of operands in shared memory.
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "watch.h"

namespace cuda_on_cpu {
namespace {

std::map<std::uint32_t, std::vector<std::function<void()>>> pending;  // by thread of the block

}  // namespace

void wgmma_later(std::function<void()> product) {
  auto& later = pending[running.thread];
  const bool early = comes_early(later.size());
  later.push_back(std::move(product));
  if (early) wgmma_wait();  // products of the same accumulators complete in order
}

void wgmma_wait() {
  auto& later = pending[running.thread];
  for (const auto& product : later) product();
  later.clear();
}

void end_wgmma() { pending.clear(); }

std::uint16_t element_of(std::uint64_t descriptor, int mn, int k, bool mn_major) {
  const auto field = [&](int bit) { return int(descriptor >> bit & 0x3fff) * 16; };
  const int start = field(0), leading = field(16), stride = field(32);
  const int mode = int(descriptor >> 62), bytes = mode == 0 ? 16 : 256 >> mode;
  if (start % 16 != 0 || (descriptor >> 49 & 7) != 0) give_up("wgmma: a malformed descriptor");
  const int column = (mn_major ? mn : k) * 2, row = mn_major ? k : mn;
  const int address =
      start + column / bytes * leading + column % bytes + row / 8 * stride + row % 8 * bytes;
  const int chunk = address >> 7 & (bytes / 16 - 1);  // the swizzle XORs it into bits 4 to 6
  const unsigned char* const swizzled = shared_at(std::uint32_t(address ^ chunk << 4));
  see(Access::kProduct, swizzled, 2, __builtin_return_address(0));
  std::uint16_t element;
  std::memcpy(&element, swizzled, sizeof element);
  return element;
}

}  // namespace cuda_on_cpu
