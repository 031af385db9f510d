// The hash NH of UMAC (Black et al., 1999): its products do not depend on each other, so that it is
// four times as fast as a CRC.
#include "block_sums.h"

#include <cstring>

namespace needle::data {
namespace {

std::uint32_t word_at(const std::byte* memory) {
  std::uint32_t word;
  std::memcpy(&word, memory, sizeof word);  // the memory need not be aligned
  return word;
}

}  // namespace

void block_sums(const std::byte* memory, std::int64_t blocks, std::int64_t size,
                const std::uint32_t* keys, std::uint64_t* out) {
  for (std::int64_t block = 0; block < blocks; ++block, memory += 4 * size) {
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < size; i += 2) {
      const std::uint32_t even = word_at(memory + 4 * i) + keys[i];
      const std::uint32_t odd = word_at(memory + 4 * i + 4) + keys[i + 1];
      sum += std::uint64_t{even} * odd;
    }
    out[block] = sum;
  }
}

}  // namespace needle::data
