// Short orders are computed by sorting, and the most recent ones are cached. Long orders are
// computed position by position: a Feistel network permutes the numbers below the next even power
// of two, and is applied again until the value is in range.
#include "permutation.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "philox.h"

namespace needle::data {
namespace {

constexpr std::uint32_t kOrderStream = (1u << 24) - 1;
constexpr std::int64_t kSortedLength = std::int64_t{1} << 17;
constexpr int kRounds = 8;

struct SortedOrder {
  std::int64_t length = -1;
  std::uint64_t seed = 0;
  std::uint32_t epoch = 0;
  std::vector<std::int64_t> indices;

  void sort() {
    std::vector<std::pair<std::uint64_t, std::int64_t>> keyed(length);
    for (std::int64_t i = 0; i < length; ++i) {
      std::uint32_t words[2];
      philox_words(seed, epoch, i, kOrderStream, 2, words);
      keyed[i] = {std::uint64_t{words[0]} << 32 | words[1], i};
    }
    std::sort(keyed.begin(), keyed.end());  // pairs: equal keys keep the order of the indices
    indices.resize(length);
    for (std::int64_t i = 0; i < length; ++i) indices[i] = keyed[i].second;
  }
};

// One cache per thread, so that a fork cannot find a lock held.
const std::vector<std::int64_t>& sorted_order(std::int64_t length, std::uint64_t seed,
                                              std::uint32_t epoch) {
  thread_local SortedOrder kept[4];
  thread_local int oldest = 0;
  for (const SortedOrder& order : kept) {
    if (order.length == length && order.seed == seed && order.epoch == epoch) return order.indices;
  }
  SortedOrder made{length, seed, epoch, {}};
  made.sort();
  SortedOrder& place = kept[oldest];
  oldest = (oldest + 1) % 4;
  place = std::move(made);
  return place.indices;
}

// MurmurHash3's 32-bit finaliser (Appleby, public domain).
std::uint32_t mixed(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85EBCA6B;
  h ^= h >> 13;
  h *= 0xC2B2AE35;
  return h ^ h >> 16;
}

struct Feistel {
  int half;
  std::uint64_t mask;
  std::uint32_t keys[kRounds];

  Feistel(std::int64_t length, std::uint64_t seed, std::uint32_t epoch)
      : half((std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(length - 1, 1))) +
              1) /
             2),
        mask((std::uint64_t{1} << half) - 1) {
    philox_words(seed, epoch, length, kOrderStream, kRounds, keys);
  }

  std::uint64_t operator()(std::uint64_t value) const {
    std::uint64_t left = value >> half, right = value & mask;
    for (const std::uint32_t key : keys) {
      const std::uint64_t next = left ^ (mixed(static_cast<std::uint32_t>(right) ^ key) & mask);
      left = right;
      right = next;
    }
    return left << half | right;
  }
};

void check_positions(const std::int64_t* positions, std::int64_t count, std::int64_t length) {
  for (std::int64_t i = 0; i < count; ++i) {
    NEEDLE_CHECK(positions[i] >= 0 && positions[i] < length,
                 "permute_indices: positions must be in [0, " + std::to_string(length) + "), got " +
                     std::to_string(positions[i]) + "; the order has " + std::to_string(length) +
                     " places");
  }
}

}  // namespace

void permute_indices(const std::int64_t* positions, std::int64_t count, std::int64_t length,
                     std::uint64_t seed, std::uint32_t epoch, std::int64_t* out) {
  check_positions(positions, count, length);
  if (count == 0) return;
  if (length <= kSortedLength) {
    const std::vector<std::int64_t>& order = sorted_order(length, seed, epoch);
    for (std::int64_t i = 0; i < count; ++i) out[i] = order[positions[i]];
    return;
  }
  const Feistel shuffle(length, seed, epoch);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t value = positions[i];
    do value = shuffle(value);
    while (value >= static_cast<std::uint64_t>(length));
    out[i] = static_cast<std::int64_t>(value);
  }
}

}  // namespace needle::data
