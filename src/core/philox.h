// Trail 26 of 30: philox_block: random words as a function of where they are used.
// Next: python/needle/data/transforms/windows.py

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) computes
// random words from a key and a counter. The bits equal those of python/needle/backends/philox.py.
// All functions are static, because objects compiled for different instruction sets must share no
// code. CUDA includes the same file.
#pragma once

#include <cstdint>

#include "scalar_math.h"  // NEEDLE_HD

namespace needle {

struct PhiloxBlock {
  std::uint32_t word[4];
};

struct PhiloxKey {
  std::uint32_t low, high;
};

[[maybe_unused]] static inline NEEDLE_HD PhiloxKey philox_key(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

// Returns the four output words of one counter.
[[maybe_unused]] static inline NEEDLE_HD PhiloxBlock philox_block(PhiloxBlock counter,
                                                                  PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const auto& c = counter.word;
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
    counter = {
        {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key.low, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key.high, static_cast<std::uint32_t>(p0)}};
    key.low += 0x9E3779B9;
    key.high += 0xBB67AE85;
  }
  return counter;
}

}  // namespace needle
