// The shuffled order of an epoch: the index at each position, with the same bits as `permutation`
// of python/needle/backends/philox.py.
#pragma once

#include <cstdint>

namespace needle::data {

// Writes out[i] = the index at positions[i] of the order of range(length). Throws Error for a
// position outside of [0, length).
void permute_indices(const std::int64_t* positions, std::int64_t count, std::int64_t length,
                     std::uint64_t seed, std::uint32_t epoch, std::int64_t* out);

}  // namespace needle::data
