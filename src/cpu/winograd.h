// A 3 x 3 convolution of step 1 by Winograd's F(4x4, 3x3), for conv2d and its input gradient
// (conv2d.cc). The weights are transformed once. Then a task takes a block of tiles (4 x 4 outputs)
// through all three steps while they lie in the cache: the 36 elements of every transformed tile,
// 36 products with the transformed weights, and back. float32 alone: float64 is for accuracy.
// An infinity or NaN in the input reaches all outputs of its tiles, not only those that see it.
#pragma once

#include "conv_taps.h"
#include "core/conv2d_algorithm.h"
#include "core/thread_pool.h"
#include "winograd_transforms.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kTileBlock = round_up(24, kTileRows);  // tiles in a task
constexpr Index kWeightElements = 1 << 21;  // of transformed weights that are made at a time
// What transforming an element of a tile, or a weight to all frequencies, takes as long as, in
// multiply-adds at full speed: measured, to choose between this and the direct sum.
constexpr Index kTransformCost = 8, kWeightCost = 864, kFewestChannels = 8;

template <class T>
struct Winograd {
  TapProduct<T> product;
  Index top, left;  // of the taps
  Index tile_rows, tile_columns;
  // From one frequency to the next: an odd number of cache lines, or what belongs to a tile would
  // meet in a few sets of the cache.
  Index weights_step, seen_step, sums_step;
  Index seen_size, sums_size;  // room for the channels of a tile
  const T* zeros;              // `seen_size` of them

  Index tiles() const { return product.grid.images * tile_rows * tile_columns; }
  Index inputs() const { return product.source.channels; }
  Index outputs() const { return product.out.channels; }
};

// Whether the taps are those of a 3 x 3 kernel without gaps, in any order.
template <class T>
bool is_three_by_three(const TapProduct<T>& p) {
  if (p.tap_count != 9 || p.grid.step.h != 1 || p.grid.step.w != 1) return false;
  Index top = p.taps[0].dy, left = p.taps[0].dx, seen = 0;
  for (Index t = 1; t < 9; ++t) {
    top = smaller(top, p.taps[t].dy), left = smaller(left, p.taps[t].dx);
  }
  for (Index t = 0; t < 9; ++t) {
    const Index dy = p.taps[t].dy - top, dx = p.taps[t].dx - left;
    if (dy > 2 || dx > 2) return false;
    seen |= Index{1} << (dy * 3 + dx);
  }
  return seen == 0x1ff;
}

constexpr Index odd_lines(Index elements) { return round_up(elements, 32) + 16; }

template <class T>
Winograd<T> winograd_of(const TapProduct<T>& p, Index block, const T* zeros) {
  using B = Blocking<T>;
  Winograd<T> w{p, p.taps[0].dy, p.taps[0].dx, 0, 0, 0, 0, 0, 0, 0, zeros};
  for (Index t = 1; t < 9; ++t) {
    w.top = smaller(w.top, p.taps[t].dy), w.left = smaller(w.left, p.taps[t].dx);
  }
  w.tile_rows = ceil_div(p.grid.rows, kTileSide);
  w.tile_columns = ceil_div(p.grid.columns, kTileSide);
  w.seen_size = w.inputs() < 128 ? round_up(w.inputs(), B::W) : odd_lines(w.inputs());
  w.sums_size = round_up(w.outputs(), B::NR);
  w.weights_step = odd_lines(w.sums_size * w.inputs());
  w.seen_step = odd_lines(round_up(block, B::MR) * w.seen_size);
  w.sums_step = odd_lines(round_up(block, B::MR) * w.sums_size);
  return w;
}

// ---- the three transformations -----------------------------------------------------------------

// Per frequency: panels of NR output channels, each with a row for every input channel.
template <class T>
void transform_weights(const Winograd<T>& w, T* transformed) {
  constexpr Index W = Blocking<T>::W, NR = Blocking<T>::NR;
  const TapProduct<T>& p = w.product;
  Index at[3][3];
  for (Index t = 0; t < 9; ++t) at[p.taps[t].dy - w.top][p.taps[t].dx - w.left] = p.taps[t].weight;
  parallel_for(w.sums_size / NR * w.inputs(), 16, [&](Index first, Index last) {
    for (Index row = first; row < last; ++row) {
      const Index c = row % w.inputs();
      for (Index half = 0; half < NR; half += W) {
        const Index o = row / w.inputs() * NR + half, n = larger(0, w.outputs() - o);
        const T* from = p.weight + c * p.input_stride + (n > 0 ? o * p.output_stride : 0);
        both_ways<T, 3, 6, weight_step<T>>(
            [&](int i, int j) { return load_part(from + at[i][j], p.output_stride, n); },
            [&](int i, int j, const Vector<T>& u) {
              store<T>(transformed + (i * kSeenSide + j) * w.weights_step + row * NR + half, u);
            });
      }
    }
  });
}

struct TileAt {
  Index n, row, column;  // of its first output
};

template <class T>
TileAt tile_at(const Winograd<T>& w, Index tile) {
  const Index row = tile / w.tile_columns;
  return {row / w.tile_rows, row % w.tile_rows * kTileSide, tile % w.tile_columns * kTileSide};
}

// The pixels that a tile sees; outside the image, the zeros.
template <class T>
void point_at_pixels(const Winograd<T>& w, const TileAt& tile, const T** pixels) {
  const Image<const T>& image = w.product.source;
  for (Index i = 0; i < kSeenSide; ++i) {
    for (Index j = 0; j < kSeenSide; ++j) {
      const Index y = tile.row + w.top + i, x = tile.column + w.left + j;
      const bool inside = y >= 0 && y < image.height && x >= 0 && x < image.width;
      *pixels++ = inside ? image.at(tile.n, y, x) : w.zeros;
    }
  }
}

// Channels [c, c + W) of a tile whose channels are few or no neighbours, copied.
template <class T>
void copy_pixels(const Winograd<T>& w, const T* const* pixels, Index c, T* copies) {
  const Index stride = w.product.source.channel_stride;
  for (int f = 0; f < kFrequencies; ++f) {
    const bool inside = pixels[f] != w.zeros;
    store<T>(copies + f * Blocking<T>::W,
             load_part(pixels[f] + (inside ? c * stride : 0), inside ? stride : 1, w.inputs() - c));
  }
}

template <class T>
[[gnu::noinline]] void transform_tile(const T* const* pixels, Index offset, Index step, T* to) {
  both_ways<T, 6, 6, input_step<T>>(
      [&](int i, int j) { return load(pixels[i * kSeenSide + j] + offset); },
      [&](int i, int j, const Vector<T>& v) { store<T>(to + (i * kSeenSide + j) * step, v); });
}

template <class T>
void transform_input(const Winograd<T>& w, Index begin, Index end, T* seen) {
  constexpr Index W = Blocking<T>::W;
  const T* pixels[kFrequencies];
  T copies[kFrequencies * W];
  const T* copied[kFrequencies];
  for (int f = 0; f < kFrequencies; ++f) copied[f] = copies + f * W;
  for (Index tile = begin; tile < end; ++tile, seen += w.seen_size) {
    point_at_pixels(w, tile_at(w, tile), pixels);
    for (Index c = 0; c < w.inputs(); c += W) {
      if (w.product.source.channel_stride == 1 && c + W <= w.inputs()) {
        transform_tile(pixels, c, w.seen_step, seen + c);
      } else {
        copy_pixels(w, pixels, c, copies);
        transform_tile(copied, 0, w.seen_step, seen + c);
      }
    }
  }
}

// sums[frequency] = seen[frequency] @ weights[frequency], for `tiles` rows.
template <class T>
void multiply_frequencies(const Winograd<T>& w, Index tiles, const T* seen, const T* weights,
                          T* sums) {
  using B = Blocking<T>;
  for (int f = 0; f < kFrequencies;
       ++f, seen += w.seen_step, weights += w.weights_step, sums += w.sums_step) {
    for (Index k = 0; k < w.inputs(); k += B::KC) {
      for (Index j = 0; j < w.sums_size; j += B::NR) {
        for (Index i = 0; i < tiles; i += B::MR) {
          const T* rows[B::MR];
          for (Index r = 0; r < B::MR; ++r) {
            rows[r] = seen + smaller(i + r, tiles - 1) * w.seen_size + k;
          }
          rows_tile<T, B::MR>(1, smaller(B::KC, w.inputs() - k), rows, 1,
                              weights + j * w.inputs() + k * B::NR, B::NR,
                              {sums + i * w.sums_size + j, w.sums_size, 1, B::MR, B::NR, k > 0});
        }
      }
    }
  }
}

template <class T>
void transform_output(const Winograd<T>& w, Index begin, Index end, const T* sums) {
  constexpr Index W = Blocking<T>::W;
  const Image<T>& out = w.product.out;
  for (Index tile = begin; tile < end; ++tile, sums += w.sums_size) {
    const TileAt at = tile_at(w, tile);
    const Index rows = out.height - at.row, columns = out.width - at.column;
    T* corner = out.at(at.n, at.row, at.column);
    for (Index o = 0; o < w.outputs(); o += W) {
      T* to = corner + o * out.channel_stride;
      both_ways<T, 6, 4, output_step<T>>(
          [&](int i, int j) { return load(sums + o + (i * kSeenSide + j) * w.sums_step); },
          [&](int i, int j, const Vector<T>& y) {
            if (i >= rows || j >= columns) return;
            store_part(y, to + i * out.row_stride + j * out.column_stride, out.channel_stride,
                       w.outputs() - o);
          });
    }
  }
}

// ---- choice ------------------------------------------------------------------------------------

// Whether it takes two thirds of the direct sum's time or less: it has a larger error, too.
template <class T>
bool winograd_pays(const TapProduct<T>& p) {
  const Index inputs = p.source.channels, outputs = round_up(p.out.channels, Blocking<T>::NR);
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
  if (algorithm == Conv2dAlgorithm::kDirect || !is_three_by_three(p)) return false;
  return p.source.channels > 0 && (algorithm == Conv2dAlgorithm::kWinograd || winograd_pays(p));
}

template <class T>
void run_part(const TapProduct<T>& p, const T* zeros) {
  const Winograd<T> w = winograd_of(p, kTileBlock, zeros);
  const ThreadScratch weights(bytes_for<T>(kFrequencies * w.weights_step));
  transform_weights(w, weights.as<T>());
  parallel_for(w.tiles(), kTileBlock, [&](Index first, Index last) {
    const ThreadScratch seen(bytes_for<T>(kFrequencies * w.seen_step));
    const ThreadScratch sums(bytes_for<T>(kFrequencies * w.sums_step));
    transform_input(w, first, last, seen.as<T>());
    multiply_frequencies(w, last - first, seen.as<const T>(), weights.as<const T>(), sums.as<T>());
    transform_output(w, first, last, sums.as<const T>());
  });
}

// Output channels whose transformed weights fit the room are done together.
template <class T>
void run_winograd(const TapProduct<T>& p) {
  constexpr Index NR = Blocking<T>::NR;
  const Index most = larger(NR, kWeightElements / (kFrequencies * p.source.channels) / NR * NR);
  const Index size = odd_lines(p.source.channels);
  const Scratch zeros(bytes_for<T>(size));
  for (Index c = 0; c < size; ++c) zeros.as<T>()[c] = T(0);
  const Index parts = ceil_div(p.out.channels, most);
  const Index part = round_up(ceil_div(p.out.channels, parts), NR);
  for (Index o = 0; o < p.out.channels; o += part) {
    TapProduct<T> some = p;
    some.out = p.out.group(o, smaller(part, p.out.channels - o));
    some.weight += o * p.output_stride;
    run_part(some, zeros.as<const T>());
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
