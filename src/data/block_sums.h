// Checksums of blocks of memory, with the same bits as `block_sums` of
// python/needle/data/samples/checksum.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace needle::data {

// Writes the checksum of each block of `size` words of 32 bits to out: the sum, modulo 2**64, of
// (words[i] + keys[i]) * (words[i + 1] + keys[i + 1]) over the even i. size is even.
void block_sums(const std::byte* memory, std::int64_t blocks, std::int64_t size,
                const std::uint32_t* keys, std::uint64_t* out);

}  // namespace needle::data
