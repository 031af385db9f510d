// Philox's words (core/philox.h) as samplers and transforms draw them: by seed, epoch, index and
// stream, with the same bits as python/needle/backends/philox.py.
#pragma once

#include <cstdint>

#include "core/philox.h"

namespace needle::data {

// Writes words 0 .. count-1 of (seed, epoch, index, stream) to out.
void philox_words(std::uint64_t seed, std::uint32_t epoch, std::int64_t index, std::uint32_t stream,
                  std::int64_t count, std::uint32_t* out);

}  // namespace needle::data
