// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): random words
// as a function of where they are used. The same bits as python/needle/data/philox.py.
#pragma once

#include <cstdint>

namespace needle::data {

struct PhiloxBlock {
  std::uint32_t word[4];
};

struct PhiloxKey {
  std::uint32_t low, high;
};

inline PhiloxKey philox_key(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

// The four output words of one counter.
inline PhiloxBlock philox_block(PhiloxBlock counter, PhiloxKey key) {
  auto& c = counter.word;
  for (int round = 0; round < 10; ++round) {
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

// The words 0 .. count-1 of (seed, epoch, index, stream) into out.
void philox_words(std::uint64_t seed, std::uint32_t epoch, std::int64_t index, std::uint32_t stream,
                  std::int64_t count, std::uint32_t* out);

}  // namespace needle::data
