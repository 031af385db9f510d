#include "philox.h"

#include <algorithm>

namespace needle::data {

void philox_words(std::uint64_t seed, std::uint32_t epoch, std::int64_t index, std::uint32_t stream,
                  std::int64_t count, std::uint32_t* out) {
  const auto place = static_cast<std::uint64_t>(index);
  for (std::int64_t from = 0; from < count; from += 4) {
    const PhiloxBlock counter = {{static_cast<std::uint32_t>(place),
                                  static_cast<std::uint32_t>(place >> 32), epoch,
                                  stream << 8 | static_cast<std::uint32_t>(from / 4)}};
    const PhiloxBlock drawn = philox_block(counter, philox_key(seed));
    std::copy_n(drawn.word, std::min<std::int64_t>(4, count - from), out + from);
  }
}

}  // namespace needle::data
