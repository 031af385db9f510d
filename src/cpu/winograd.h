// A 3 x 3 convolution of stride 1 by Winograd's F(4x4, 3x3), for conv2d and its input gradient
// (conv2d.cc). The weights are transformed once. Then a task processes a block of tiles (4 x 4
// outputs) in three steps while they are in the cache: it transforms each tile to 36 elements,
// multiplies by the transformed weights at each of the 36 frequencies, and transforms back. Only
// float32 uses it, since float64 is chosen for accuracy. An infinity or NaN in the input reaches
// all outputs of its tiles, not only those whose window contains it.
#pragma once

#include "conv2d_algorithm.h"
#include "core/thread_pool.h"
#include "winograd_tiles.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kTileBlock = round_up(24, kTileRows);  // tiles in a task
constexpr Index kTileShare = 4, kFrequencyShare = 6;   // of a block, in a part of a task
constexpr Index kWeightElements = 1 << 21;  // transformed weights that are computed at a time

template <class T>
struct Winograd {
  TapProduct<T> product;
  TileSource<T> source;
  Index weights_step, sums_step;  // from one frequency to the next
  Index sums_size;                // room for the channels of a tile

  Index inputs() const { return product.source.channels; }
  Index outputs() const { return product.out.channels; }
};

template <class T>
Winograd<T> winograd_of(const TapProduct<T>& p, const T* zeros) {
  const TileSource<T> source =
      tile_source<T>(p.source, p.grid, corner_of(p.taps), kTileBlock, Blocking<T>::W, zeros);
  const Index sums_size = round_up(p.out.channels, Blocking<T>::W);
  return {p, source, odd_lines(sums_size * p.source.channels), odd_lines(kTileBlock * sums_size),
          sums_size};
}

// ---- the three steps ---------------------------------------------------------------------------

// Transforms the weights. Each frequency has panels of two vectors of output channels (the last may
// have one), with one row per input channel.
template <class T>
void transform_weights(const Winograd<T>& w, T* transformed) {
  constexpr Index W = Blocking<T>::W, NR = Blocking<T>::NR;
  const TapProduct<T>& p = w.product;
  Index tap_offsets[3][3];
  for (Index t = 0; t < 9; ++t) {
    tap_offsets[p.taps[t].dy - w.source.top][p.taps[t].dx - w.source.left] = p.taps[t].weight;
  }
  parallel_for(w.sums_size / W * w.inputs(), 32, [&](Index first, Index last) {
    for (Index vector = first; vector < last; ++vector) {
      const Index c = vector % w.inputs(), o = vector / w.inputs() * W;
      const Index panel = o / NR * NR, width = smaller(NR, w.sums_size - panel);
      const T* from = p.weight + c * p.input_stride + o * p.output_stride;
      T* to = transformed + panel * w.inputs() + c * width + (o - panel);
      both_ways<T, 3, 6, weight_step<T>>(
          [&](int i, int j) {
            return load_part(from + tap_offsets[i][j], p.output_stride, w.outputs() - o);
          },
          [&](int i, int j, const Vector<T>& u) {
            store<T>(to + (i * kSeenSide + j) * w.weights_step, u);
          });
    }
  });
}

// Computes sums[frequency] = seen[frequency] @ weights[frequency] for frequencies [first, last).
// Each product has `tiles` rows.
template <class T>
void multiply_frequencies(const Winograd<T>& w, Index first, Index last, Index tiles, const T* seen,
                          const T* weights, T* sums) {
  using B = Blocking<T>;
  const Index height = tile_height<T>(tiles);
  for (Index f = first; f < last; ++f) {
    const T* rows_of = seen + f * w.source.step;
    for (Index k = 0; k < w.inputs(); k += B::KC) {
      for (Index j = 0; j < w.sums_size; j += B::NR) {
        const Index width = smaller(B::NR, w.sums_size - j);
        const T* panel = weights + f * w.weights_step + j * w.inputs() + k * width;
        with_tile<T>(height, width, [&]<int R, int V>() {
          for (Index i = 0; i < tiles; i += R) {
            frequency_tile<T, R, V>(smaller(B::KC, w.inputs() - k), rows_of + i * w.source.size + k,
                                    w.source.size, One{}, panel, width,
                                    sums + f * w.sums_step + i * w.sums_size + j, w.sums_size,
                                    k > 0);
          }
        });
      }
    }
  }
}

template <class T>
void transform_output(const Winograd<T>& w, Index begin, Index end, const T* sums) {
  constexpr Index W = Blocking<T>::W;
  const Image<T>& out = w.product.out;
  const T* biases = w.product.bias;
  const Vector<T> floor = Vector<T>{} + w.product.least;
  for (Index tile = begin; tile < end; ++tile, sums += w.sums_size) {
    const TileAt place = tile_at(w.source, tile);
    const Index rows = out.height - place.row, columns = out.width - place.column;
    T* corner = out.at(place.n, place.row, place.column);
    for (Index o = 0; o < w.outputs(); o += W) {
      T* to = corner + o * out.channel_stride;
      const Vector<T> bias =
          biases != nullptr ? load_part(biases + o, 1, w.outputs() - o) : Vector<T>{};
      both_ways<T, 6, 4, output_step<T>>(
          [&](int i, int j) { return load(sums + o + (i * kSeenSide + j) * w.sums_step); },
          [&](int i, int j, const Vector<T>& y) {
            if (i >= rows || j >= columns) return;
            const Vector<T> sum = y + bias;
            store_part(floor > sum ? floor : sum, to + i * out.row_stride + j * out.column_stride,
                       out.channel_stride, w.outputs() - o);
          });
    }
  }
}

// ---- choice ------------------------------------------------------------------------------------

// Returns true if Winograd's method takes at most two thirds of the direct sum's time; the margin
// is for its larger error.
template <class T>
bool winograd_pays(const TapProduct<T>& p) {
  const Index inputs = p.source.channels, outputs = round_up(p.out.channels, Blocking<T>::W);
  if (smaller(inputs, p.out.channels) < kFewestChannels) return false;
  const Index tiles =
      p.grid.images * ceil_div(p.grid.rows, kTileSide) * ceil_div(p.grid.columns, kTileSide);
  const Index transforms = kTransformCost * (inputs + outputs);
  const Index work =
      tiles * kFrequencies * (inputs * outputs + transforms) + kWeightCost * inputs * outputs;
  return 3 * work < 2 * 9 * p.grid.size() * inputs * outputs;
}

template <class T>
bool uses_winograd(const TapProduct<T>& p) {
  const Conv2dAlgorithm algorithm = conv2d_algorithm();
  if (algorithm == Conv2dAlgorithm::kDirect) return false;
  if (p.source.channels == 0 || !is_three_by_three(p.taps, p.tap_count, p.grid)) return false;
  return algorithm == Conv2dAlgorithm::kWinograd || winograd_pays(p);
}

// Returns the number of elements of all transformed weights; 0 if they are transformed in several
// parts.
template <class T>
Index transformed_size(const TapProduct<T>& p) {
  const bool fits = kFrequencies * p.source.channels * p.out.channels <= kWeightElements;
  return fits ? kFrequencies * winograd_of<T>(p, nullptr).weights_step : 0;
}

template <class T>
void run_part(const TapProduct<T>& p, const T* zeros) {
  const Winograd<T> w = winograd_of(p, zeros);
  const bool transforms = p.prepared == nullptr;
  const ThreadScratch room(bytes_for<T>(transforms ? kFrequencies * w.weights_step : 0));
  if (transforms) transform_weights(w, room.as<T>());
  const T* weights = transforms ? room.as<const T>() : p.prepared;
  parallel_for(w.source.tiles(), kTileBlock, [&](Index first, Index last) {
    const ThreadScratch seen(bytes_for<T>(kFrequencies * w.source.step));
    const ThreadScratch sums(bytes_for<T>(kFrequencies * w.sums_step));
    // If there is one block, threads share its steps; else these loops run inside a task.
    parallel_for(last - first, kTileShare, [&](Index begin, Index end) {
      transform_tiles<T, kSeenSide, input_step<T>>(w.source, first + begin, first + end,
                                                   seen.as<T>() + begin * w.source.size);
    });
    parallel_for(kFrequencies, kFrequencyShare, [&](Index begin, Index end) {
      multiply_frequencies(w, begin, end, last - first, seen.as<const T>(), weights, sums.as<T>());
    });
    parallel_for(last - first, kTileShare, [&](Index begin, Index end) {
      transform_output(w, first + begin, first + end, sums.as<const T>() + begin * w.sums_size);
    });
  });
}

// Processes together the output channels whose transformed weights fit kWeightElements.
template <class T>
void run_winograd(const TapProduct<T>& p) {
  constexpr Index NR = Blocking<T>::NR;
  const Index most = larger(NR, kWeightElements / (kFrequencies * p.source.channels) / NR * NR);
  const Index channels = p.source.channels + Blocking<T>::W;
  const Scratch zeros(bytes_for<T>(channels));
  clear(zeros.as<T>(), channels);
  const Index parts = p.prepared != nullptr ? 1 : ceil_div(p.out.channels, most);
  const Index part = round_up(ceil_div(p.out.channels, parts), NR);
  for (Index o = 0; o < p.out.channels; o += part) {
    TapProduct<T> slice = p;
    slice.out = p.out.group(o, smaller(part, p.out.channels - o));
    slice.weight += o * p.output_stride;
    if (p.bias != nullptr) slice.bias += o;
    run_part(slice, zeros.as<const T>());
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
