// Passes over the pixels (rows) of each channel (column), for batch norm and for the weight
// gradient of layer norm. A block's tile has `across` adjacent channels and 256 / across pixels at
// a time: 32 float channels fill a cache line, 8 the smallest memory transaction. If channels are
// not contiguous, a tile has one channel and the loads coalesce along pixels. Each thread keeps to
// one channel, so the channel's constants stay in registers. Shared memory reduces the threads of a
// channel. Each block writes partial sums, and the last block of a tile to finish adds them up,
// since a second kernel would wait for all blocks of all channels. The split of the pixels and the
// order of additions depend on the shape alone.
#pragma once

#include <cmath>

#include "allocator.h"
#include "core/check.h"
#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kChannelThreads = 256;
constexpr std::int64_t kPixelsOfThread = 8;  // minimum
constexpr std::int64_t kManyBlocks = 2048;   // of passes that compute sums

struct ChannelTiles {
  Divisor tiles;  // across the channels; a block's number is chunk * tiles + tile
  std::uint32_t across, channels;
  std::uint32_t pixels, chunk, chunks;

  std::uint32_t blocks() const { return tiles.divisor * chunks; }
};

// Divides a pass into tiles and chunks of pixels. If `sums` is true, the chunks' results are
// combined at the end. A chunk then has about as many pixels as there are chunks, so that the last
// block's serial loads take no longer than the other blocks'.
inline ChannelTiles tiles_of(const char* op, std::int64_t pixels, std::int64_t channels,
                             bool neighbours, bool sums) {
  check_count(op, pixels);
  check_count(op, channels);
  const std::int64_t across = !neighbours ? 1 : channels >= 32 ? 32 : 8;
  const std::int64_t tiles = ceil_div(channels, across), lanes = kChannelThreads / across;
  const auto root = static_cast<std::int64_t>(std::sqrt(double(pixels)));
  const std::int64_t least =
      lanes * std::max<std::int64_t>(kPixelsOfThread, sums ? ceil_div(root, lanes) : 0);
  const std::int64_t most = sums ? std::max<std::int64_t>(1, kManyBlocks / tiles)
                                 : std::max<std::int64_t>(1, (1 << 30) / tiles);
  const std::int64_t chunk = std::max(least, ceil_div(pixels, most));
  const auto u32 = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
  return {Divisor(tiles), u32(across), u32(channels),
          u32(pixels),    u32(chunk),  u32(ceil_div(pixels, chunk))};
}

// The work of a thread: one channel, and its pixels first, first + step, ... < end.
struct ChannelThread {
  std::uint32_t chunk, tile, channel, first, end, step;

  explicit __device__ ChannelThread(const ChannelTiles& t) {
    chunk = t.tiles.quotient(blockIdx.x);
    tile = blockIdx.x - chunk * t.tiles.divisor;
    channel = tile * t.across + (threadIdx.x & (t.across - 1));
    step = kChannelThreads / t.across;
    first = chunk * t.chunk + threadIdx.x / t.across;
    end = channel < t.channels ? std::min((chunk + 1) * t.chunk, t.pixels) : 0;
  }
};

// Two sums over the pixels of a channel.
struct Sums {
  double first, second;

  __device__ Sums& operator+=(const Sums& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};

// Returns the sum over the block's threads with the same channel. It is valid in the first of them.
template <class V>
__device__ V add_threads(const V& mine, V* shared, unsigned across) {
  shared[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = kChannelThreads / 2; half >= across; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[threadIdx.x];
}

// Counts the blocks of each tile that have written their partial sums. The last block's atomicInc
// wraps to zero, so the counters are zero between kernels, also when a graph is launched again. The
// kernels of a device run in stream order, so they share the counters. If there are more tiles than
// counters, there is one chunk (tiles_of).
__device__ unsigned finished[kManyBlocks / 2];

// Returns true in every thread of a tile's last block. The fences on both sides order the other
// blocks' writes before the last block's reads; the barriers extend both to all threads.
inline __device__ bool is_last(const ChannelTiles& t, const ChannelThread& my) {
  NEEDLE_SHARED(last, bool);
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(&finished[my.tile], t.chunks - 1) == t.chunks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// Sums `total` over all pixels of a channel; blocks exchange partial sums in parts[chunk][channel].
// Returns true in one thread of the grid per channel, whose `total` is then the channel's sum. All
// threads of a block must call it.
template <class V>
__device__ bool add_up(V& total, V* parts, const ChannelTiles& t, const ChannelThread& my) {
  NEEDLE_SHARED(shared, V[kChannelThreads]);
  const bool first = threadIdx.x < t.across && my.channel < t.channels;
  total = add_threads(total, shared, t.across);
  if (t.chunks == 1) return first;
  if (first) parts[std::size_t(my.chunk) * t.channels + my.channel] = total;
  if (!is_last(t, my)) return false;
  total = {};
  if (my.channel < t.channels) {
    const auto load = [&](std::uint32_t i) {
      return parts[std::size_t(i) * t.channels + my.channel];
    };
    stream<float>(threadIdx.x / t.across, t.chunks, my.step, load,
                  [&](std::uint32_t, const V& part) { total += part; });
  }
  total = add_threads(total, shared, t.across);
  return first;
}

// A vector with one value for each channel.
template <class T>
struct Vector {
  T* data;
  std::int64_t stride;

  explicit Vector(const View& v) : data(data_of<T>(v)), stride(v.strides[0]) {}
  __device__ T& operator[](std::uint32_t i) const { return data[i * stride]; }
};

}  // namespace
}  // namespace needle::cuda
