// Passes over the pixels (rows) of each channel (column): batch norm, and layer norm's sums for its
// weight. A block works on `across` neighbouring channels and 256 / across pixels at a time: 32
// channels are a cache line of floats, 8 are the smallest memory transaction. Where channels are
// not neighbours in memory it works on one, and its threads read neighbouring pixels. Each thread
// works on one channel, so the channel's constants stay in registers. The threads of a channel add
// up in shared memory, and blocks write partial results. The division of the pixels depends on
// sizes alone.
#pragma once

#include "allocator.h"
#include "core/check.h"
#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kChannelThreads = 256;
constexpr std::int64_t kPixelsOfThread = 64, kManyBlocks = 2048;  // of passes that sum
constexpr std::int64_t kPixelsToWrite = 8;                        // of those that do not

struct ChannelTiles {
  Divisor tiles;  // across the channels; a block's number is chunk * tiles + tile
  std::uint32_t across, channels;
  std::uint32_t pixels, chunk, chunks;

  std::uint32_t blocks() const { return tiles.divisor * chunks; }
};

// `sums`: with few blocks, whose partial results are combined.
inline ChannelTiles tiles_of(const char* op, std::int64_t pixels, std::int64_t channels,
                             bool neighbours, bool sums) {
  check_count(op, pixels);
  check_count(op, channels);
  const std::int64_t across = !neighbours ? 1 : channels >= 32 ? 32 : 8;
  const std::int64_t tiles = ceil_div(channels, across), lanes = kChannelThreads / across;
  const std::int64_t least = lanes * (sums ? kPixelsOfThread : kPixelsToWrite);
  const std::int64_t most = sums ? std::max<std::int64_t>(1, kManyBlocks / tiles)
                                 : std::max<std::int64_t>(1, (1 << 30) / tiles);
  const std::int64_t chunk = std::max(least, ceil_div(pixels, most));
  const auto u32 = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
  return {Divisor(tiles), u32(across), u32(channels),
          u32(pixels),    u32(chunk),  u32(ceil_div(pixels, chunk))};
}

// The work of a thread: its channel, and pixels first, first + step, ... below end.
struct ChannelThread {
  std::uint32_t chunk, channel, first, end, step;

  explicit __device__ ChannelThread(const ChannelTiles& t) {
    chunk = t.tiles.quotient(blockIdx.x);
    channel = (blockIdx.x - chunk * t.tiles.divisor) * t.across + (threadIdx.x & (t.across - 1));
    step = kChannelThreads / t.across;
    first = chunk * t.chunk + threadIdx.x / t.across;
    end = channel < t.channels ? std::min((chunk + 1) * t.chunk, t.pixels) : 0;
  }
};

// The sum of the values of all threads of a channel, in a fixed order; valid in the first of them.
template <class V>
__device__ V add_up(V value, V* shared, unsigned across) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kChannelThreads / 2; half >= across; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[threadIdx.x];
}

// The partial results of one channel, added up by a block; parts[chunk][channel].
template <class V>
__device__ V add_parts(const V* parts, const ChannelTiles& t, std::uint32_t channel, V* shared) {
  V total = {};
  for (std::uint32_t i = threadIdx.x; i < t.chunks; i += kChannelThreads) {
    total += parts[std::size_t(i) * t.channels + channel];
  }
  return add_up(total, shared, 1);
}

}  // namespace
}  // namespace needle::cuda
