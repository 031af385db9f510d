// The weight gradient of a 3 x 3 convolution of stride 1 by Winograd's F(3x3, 4x4), for
// conv2d_weight_grad.cc. Tiles of the image and of the gradient are transformed. At each of 36
// frequencies, their products (input channel, output channel) are summed over the tiles. These sums
// are transformed to the nine taps. A task takes a block of channels and a range of tiles; the
// results of the ranges are added in order. Only for float32.
#pragma once

#include "conv2d_algorithm.h"
#include "conv_weight_grad.h"
#include "core/thread_pool.h"
#include "winograd_tiles.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kSummedTiles = 48;      // transformed at a time,
constexpr Index kMoreTiles = 96;        // and where few channels leave room in L2
constexpr Index kFewerChannels = 64;    // of the image and of the gradient together
constexpr Index kChannelsAtOnce = 128;  // of the image and of the gradient, in a task
constexpr Index kGradientTasks = 16;

template <class T>
struct WinogradGradient : WeightGradient<T> {
  Index tiles = 0;
  Index inputs = 0, outputs = 0;  // channels of a task
  Index together = 0;             // tiles transformed at a time
  Index input_blocks = 0, output_blocks = 0;

  Index elements() const { return this->rows() * this->grad.channels; }
};

template <class T>
WinogradGradient<T> winograd_gradient(const WeightGradient<T>& w) {
  const auto &grad = w.grad, &x = w.x;
  WinogradGradient<T> g{w};
  g.input_blocks = ceil_div(x.channels, kChannelsAtOnce);
  g.output_blocks = ceil_div(grad.channels, kChannelsAtOnce);
  g.inputs = round_up(ceil_div(x.channels, g.input_blocks), Blocking<T>::W);
  g.outputs = round_up(ceil_div(grad.channels, g.output_blocks), Blocking<T>::NR);
  g.tiles = w.grid.images * ceil_div(w.grid.rows, kTileSide) * ceil_div(w.grid.columns, kTileSide);
  g.together = g.inputs + g.outputs <= kFewerChannels ? kMoreTiles : kSummedTiles;
  const Index wanted = ceil_div(kGradientTasks, g.input_blocks * g.output_blocks);
  const Index ranges = larger(1, smaller(wanted, g.tiles / (2 * g.together)));
  g.range = round_up(ceil_div(g.tiles, ranges), g.together);
  g.ranges = ceil_div(g.tiles, g.range);
  return g;
}

// Returns the height of the next tile of `left` rows: 16 rows are two tiles of 8, because the few
// sums of a tile of two rows would not hide the latency of additions.
template <class T>
constexpr Index tile_rows(Index left) {
  constexpr Index MR = Blocking<T>::MR;
  return left > MR && left <= 16 ? smaller(MR, 8) : smaller(MR, left);
}

// Computes seen[frequency]^T @ grads[frequency] over `tiles` tiles. The product (inputs, outputs)
// is added to sums[frequency] if `add` is true, else stored there.
template <class T>
void multiply_tiles(const TileSource<T>& x, const TileSource<T>& grad, Index tiles, const T* seen,
                    const T* grads, T* sums, Index sums_step, bool add) {
  using B = Blocking<T>;
  const Index inputs = x.image.channels, outputs = grad.filled;
  for (int f = 0; f < kFrequencies; ++f, seen += x.step, grads += grad.step, sums += sums_step) {
    for (Index o = 0; o < outputs; o += B::NR) {
      const Index width = smaller(B::NR, outputs - o);
      for (Index c = 0, n = 0; c < inputs; c += n) {
        n = tile_rows<T>(inputs - c);
        with_tile<T>(n, width, [&]<int R, int V>() {
          frequency_tile<T, R, V>(tiles, seen + c, One{}, x.size, grads + o, grad.size,
                                  sums + c * outputs + o, outputs, add);
        });
      }
    }
  }
}

// Transforms the sums to the nine taps. `result` points to this block's first element in (9, C, O).
template <class T>
void transform_sums(const T* sums, Index sums_step, Index inputs, Index outputs, Index row_size,
                    T* result, Index tap_step, Index input_step) {
  for (Index c = 0; c < inputs; ++c, sums += row_size, result += input_step) {
    for (Index o = 0; o < outputs; o += Blocking<T>::W) {
      both_ways<T, 6, 3, weight_grad_step<T>>(
          [&](int i, int j) { return load(sums + o + (i * kSeenSide + j) * sums_step); },
          [&](int i, int j, const Vector<T>& y) {
            store_part(y, result + o + (i * 3 + j) * tap_step, 1, outputs - o);
          });
    }
  }
}

// Computes input channels from c and output channels from o, summed over tiles [begin, end), in
// `partial` (9, C, O).
template <class T>
void sum_tiles(const WinogradGradient<T>& g, Index c, Index o, Index begin, Index end,
               const T* zeros, T* partial) {
  using B = Blocking<T>;
  const TileSource<T> x = tile_source<T>(g.x.group(c, smaller(g.inputs, g.x.channels - c)), g.grid,
                                         corner_of(g.taps), g.together, B::W, zeros);
  const TileSource<T> grad =
      tile_source<T>(g.grad.group(o, smaller(g.outputs, g.grad.channels - o)), g.grid, {0, 0},
                     g.together, B::W, zeros);
  const Index sums_step = odd_lines(round_up(x.image.channels, B::MR) * grad.filled);
  const ThreadScratch sums(bytes_for<T>(kFrequencies * sums_step));
  const ThreadScratch seen(bytes_for<T>(kFrequencies * x.step));
  const ThreadScratch grads(bytes_for<T>(kFrequencies * grad.step));
  for (Index tile = begin; tile < end; tile += g.together) {
    const Index last = smaller(tile + g.together, end);
    transform_tiles<T, kSeenSide, input_step<T>>(x, tile, last, seen.as<T>());
    transform_tiles<T, kTileSide, gradient_step<T>>(grad, tile, last, grads.as<T>());
    multiply_tiles(x, grad, last - tile, seen.as<const T>(), grads.as<const T>(), sums.as<T>(),
                   sums_step, tile > begin);
  }
  transform_sums(sums.as<const T>(), sums_step, x.image.channels, grad.image.channels, grad.filled,
                 partial + c * g.grad.channels + o, g.x.channels * g.grad.channels,
                 g.grad.channels);
}

template <class T>
void run_winograd_gradient(const WinogradGradient<T>& g, const WeightTarget<T>& out) {
  const Index channels = larger(g.x.channels, g.grad.channels) + Blocking<T>::NR + Blocking<T>::W;
  const Scratch zeros(bytes_for<T>(channels));
  clear(zeros.as<T>(), channels);
  const Scratch partials(bytes_for<T>(g.ranges * g.elements()));
  const Index blocks = g.input_blocks * g.output_blocks;
  parallel_for(blocks * g.ranges, 1, [&](Index first, Index last) {
    for (Index task = first; task < last; ++task) {
      const Index block = task / g.ranges, begin = task % g.ranges * g.range;
      const Index c = block % g.input_blocks * g.inputs, o = block / g.input_blocks * g.outputs;
      if (c >= g.x.channels || o >= g.grad.channels) continue;
      sum_tiles(g, c, o, begin, smaller(begin + g.range, g.tiles), zeros.as<const T>(),
                partials.as<T>() + task % g.ranges * g.elements());
    }
  });
  add_partials<T>(g, partials.as<T>(), g.grad.channels, out);
}

// Returns true if this method takes at most two thirds of the direct sum's time, as in winograd.h.
template <class T>
bool winograd_pays(const WinogradGradient<T>& g) {
  const Index inputs = g.x.channels, outputs = round_up(g.grad.channels, Blocking<T>::W);
  if (smaller(inputs, g.grad.channels) < kFewestChannels) return false;
  const Index transforms = kTransformCost * (inputs * g.output_blocks + outputs * g.input_blocks);
  const Index work = g.tiles * kFrequencies * (inputs * outputs + transforms) +
                     g.ranges * kWeightCost * inputs * outputs;
  return 3 * work < 2 * 9 * g.grid.size() * inputs * outputs;
}

template <class T>
bool uses_winograd(const WeightGradient<T>& w) {
  const Conv2dAlgorithm algorithm = conv2d_algorithm();
  if (algorithm == Conv2dAlgorithm::kDirect || w.grid.size() == 0) return false;
  if (!is_three_by_three(w.taps, w.tap_count, w.grid)) return false;
  return algorithm == Conv2dAlgorithm::kWinograd || winograd_pays(winograd_gradient(w));
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
