// Trail 17 of 30: run_chunk: the same product without the matrix; it reads the image.
// Next: python/needle/ops/loss.py

// Convolution as an implicit matrix product over channels-last images, for conv2d.cc. Rows are the
// pixels of a grid, k runs over the channels of the taps, and columns are the output channels. The
// left operand is never written. Instead the micro-kernel gets, for each tap and each pixel of its
// tile, a pointer to that pixel's channels (to zeros outside of the image). Channels that are few
// or not contiguous are first copied into patches, one chunk of pixels at a time.
#pragma once

#include "conv_taps.h"
#include "core/thread_pool.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr int kChunkTiles = 16;     // tiles of MR pixels per task
constexpr Index kFewChannels = 8;   // with fewer channels, pointers cost more than copies
constexpr Index kFewPixels = 64;    // for fewer, packing the weights does not pay
constexpr Index kEnoughTasks = 64;  // with fewer, the output channels are split too

template <class T>
bool copies_patches(const TapProduct<T>& p) {
  return p.source.channel_stride != 1 || p.source.channels < kFewChannels;
}

// Packs the weights of NR output channels, from j on, for taps [first, last). The panel has one row
// per (tap, channel).
template <class T>
void pack_panel(const TapProduct<T>& p, Index j, Index first, Index last, T* packed) {
  constexpr Index NR = Blocking<T>::NR;
  for (Index t = first; t < last; ++t, packed += p.source.channels * NR) {
    pack_b(p.weight + p.taps[t].weight + j * p.output_stride, p.input_stride, p.output_stride,
           p.source.channels, smaller(NR, p.out.channels - j), packed);
  }
}

// ---- the results of a chunk: bias, ReLU and, where they are in a buffer, the copy to the image --

// Returns true if consecutive pixels of the grid are evenly spaced in memory and have contiguous
// channels.
template <class T>
bool is_linear(const Image<T>& out) {
  return out.channel_stride == 1 &&
         (out.height == 1 || out.row_stride == out.width * out.column_stride) &&
         (out.images == 1 || out.image_stride == out.height * out.width * out.column_stride);
}

// Copies columns [first, last) of pixels [begin, end) from the buffer `rows` to the image.
template <class T>
void scatter_rows(const TapProduct<T>& p, Index begin, Index end, const T* rows, Index first,
                  Index last) {
  Pixel pixel = pixel_at(p.grid, begin);
  for (Index index = begin; index < end; ++index, rows += p.out.channels) {
    T* to = p.out.at(pixel.n, pixel.i, pixel.j);
    for (Index o = first; o < last; ++o) to[o * p.out.channel_stride] = rows[o];
    advance(p.grid, pixel);
  }
}

// Initialises the rows of results with the bias, if there is one.
template <class T>
void set_bias(const T* bias, Index pixels, Index first, Index last, T* out, Index pixel_stride) {
  if (bias == nullptr) return;
  for (Index index = 0; index < pixels; ++index, out += pixel_stride) {
    for (Index o = first; o < last; ++o) out[o] = bias[o];
  }
}

// With ReLU, clamps the rows of results to at least p.least.
template <class T>
void raise(const TapProduct<T>& p, Index pixels, Index first, Index last, T* out,
           Index pixel_stride) {
  if (!p.has_floor()) return;
  for (Index index = 0; index < pixels; ++index, out += pixel_stride) {
    for (Index o = first; o < last; ++o) out[o] = p.least > out[o] ? p.least : out[o];
  }
}

// ---- the product -------------------------------------------------------------------------------

// The left operand of rows_tile for a chunk of pixels, as pointers to runs of elements.
template <class T>
struct Rows {
  Index runs, length;  // along k
  Index height;        // pixels of a tile
  const T** pointers;  // [tile][run][height]
  const T* const* tile(Index t) const { return pointers + t * runs * height; }
};

// Returns pointers to the channels that each pixel in [begin, end) reads through each tap.
template <class T>
Rows<T> point_at_channels(const TapProduct<T>& p, Index begin, Index end, const T* zeros,
                          const T** pointers) {
  const Index height = tile_height<T>(end - begin);
  Pixel pixel = pixel_at(p.grid, begin);
  for (Index index = 0; index < round_up(end - begin, height); ++index) {
    const T** column = pointers + index / height * p.tap_count * height + index % height;
    for (Index t = 0; t < p.tap_count; ++t) {
      const T* source =
          begin + index < end ? source_of(p.source, p.grid, pixel, p.taps[t]) : nullptr;
      column[t * height] = source != nullptr ? source : zeros;
    }
    advance(p.grid, pixel);
  }
  return {p.tap_count, p.source.channels, height, pointers};
}

// Copies the patches of pixels [begin, end); returns a pointer to each.
template <class T>
Rows<T> copy_patches(const TapProduct<T>& p, Index begin, Index end, T* patches,
                     const T** pointers) {
  const Index depth = p.depth(), height = tile_height<T>(end - begin);
  Pixel pixel = pixel_at(p.grid, begin);
  for (Index index = 0; index < round_up(end - begin, height); ++index) {
    const Index row = smaller(index, end - begin - 1);
    pointers[index] = patches + row * depth;
    if (begin + index >= end) continue;
    copy_patch(p.source, p.grid, pixel, p.taps, 0, depth, patches + index * depth);
    advance(p.grid, pixel);
  }
  return {1, depth, height, pointers};
}

// The weights of NR output channels, in rows `stride` apart.
template <class T>
struct Panel {
  const T* rows;
  Index stride;
};

// Returns true if the weights of taps [first, last) can be read in place from column j on. Few
// pixels may read them, output channels must be contiguous, and taps must follow one another.
template <class T>
bool reads_in_place(const TapProduct<T>& p, Index pixels, Index j, Index first, Index last) {
  const Index step = p.source.channels * p.input_stride;
  bool follow =
      pixels <= kFewPixels && p.output_stride == 1 && p.out.channels - j >= Blocking<T>::NR;
  for (Index t = first + 1; follow && t < last; ++t) {
    follow = p.taps[t].weight == p.taps[t - 1].weight + step;
  }
  return follow;
}

// Multiplies `pixels` rows by columns [first, last) of the weights. The product is added to `out`
// if `add` is true, else stored. Runs are processed in slices, so that the active part of a panel
// stays in L1. weights(j, run, runs) returns the panel from column j on, for `runs` runs from `run`
// on.
template <class T, class F>
void multiply_rows(const Rows<T>& rows, Index pixels, F&& weights, Index first, Index last, T* out,
                   Index pixel_stride, bool add) {
  constexpr Index NR = Blocking<T>::NR;
  const Index slice = larger(1, Blocking<T>::KC / larger(rows.length, 1));
  Index run = 0;
  do {
    const Index runs = smaller(slice, rows.runs - run);
    for (Index j = first; j < last; j += NR) {
      const Panel<T> panel = weights(j, run, runs);
      with_tile<T>(rows.height, last - j, [&]<int R, int V>() {
        for (Index i = 0; i < pixels; i += R) {
          rows_tile<T, R, V>(runs, rows.length, rows.tile(i / R) + run * R, 1, panel.rows,
                             panel.stride,
                             {out + i * pixel_stride + j, pixel_stride, 1, smaller(R, pixels - i),
                              smaller(NR, last - j), add || run > 0});
        }
      });
    }
    run += runs;
  } while (run < rows.runs);
}

// Computes columns [first, last) of pixels [begin, end), with bias and ReLU. `packed` has all
// panels of the weights. It is null if this is the only chunk; then each slice of a panel is packed
// just before its use.
template <class T>
void run_chunk(const TapProduct<T>& p, Index begin, Index end, Index first, Index last,
               const T* packed, const T* zeros) {
  constexpr Index NR = Blocking<T>::NR;
  const Index room = round_up(end - begin, Blocking<T>::MR), outputs = p.out.channels;
  const bool copies = copies_patches(p);
  const Scratch pointers(bytes_for<T*>(room * (copies ? 1 : p.tap_count)));
  const Scratch patches(bytes_for<T>(copies ? room * p.depth() : 0));
  const Rows<T> rows = copies
                           ? copy_patches(p, begin, end, patches.as<T>(), pointers.as<const T*>())
                           : point_at_channels(p, begin, end, zeros, pointers.as<const T*>());
  const bool linear = is_linear(p.out);
  const Scratch aside(bytes_for<T>(linear ? 0 : (end - begin) * outputs));
  T* out = linear ? p.out.data + begin * p.out.column_stride : aside.as<T>();
  const Index pixel_stride = linear ? p.out.column_stride : outputs;
  set_bias(p.bias, end - begin, first, last, out, pixel_stride);
  const Index depth = larger(rows.length, smaller(Blocking<T>::KC, p.depth()));  // of a slice
  const ThreadScratch slice(bytes_for<T>(packed != nullptr ? 0 : NR * depth));
  const auto weights = [&](Index j, Index run, Index runs) -> Panel<T> {
    if (packed != nullptr) return {packed + j * p.depth() + run * NR * rows.length, NR};
    const Index taps = copies ? p.tap_count : 1;  // in a run
    if (reads_in_place(p, end - begin, j, run * taps, (run + runs) * taps)) {
      return {p.weight + p.taps[run * taps].weight + j, p.input_stride};
    }
    pack_panel(p, j, run * taps, (run + runs) * taps, slice.as<T>());
    return {slice.as<const T>(), NR};
  };
  multiply_rows(rows, end - begin, weights, first, last, out, pixel_stride, p.bias != nullptr);
  raise(p, end - begin, first, last, out, pixel_stride);
  if (!linear) scatter_rows(p, begin, end, aside.as<const T>(), first, last);
}

template <class T>
Index packed_size(const TapProduct<T>& p) {
  return round_up(p.out.channels, Blocking<T>::NR) * p.depth();
}

// Packs the panels of all output channels.
template <class T>
void pack_weights(const TapProduct<T>& p, T* packed) {
  constexpr Index NR = Blocking<T>::NR;
  parallel_for(ceil_div(p.out.channels, NR), 1, [&](Index first, Index last) {
    for (Index j = first * NR; j < smaller(last * NR, p.out.channels); j += NR) {
      pack_panel(p, j, 0, p.tap_count, packed + j * p.depth());
    }
  });
}

template <class T>
void run_rows(const TapProduct<T>& p) {
  constexpr Index NR = Blocking<T>::NR;
  const Index pixels = p.grid.size(), outputs = p.out.channels;
  constexpr Index MR = Blocking<T>::MR;
  const Index chunks = ceil_div(pixels, kChunkTiles * MR);
  const Index chunk = round_up(ceil_div(pixels, chunks), MR);
  const bool packs = chunks > 1 && p.prepared == nullptr;
  const Scratch packed(bytes_for<T>(packs ? packed_size(p) : 0));
  if (packs) pack_weights(p, packed.as<T>());
  const T* panels = packs ? packed.as<const T>() : p.prepared;
  const Scratch zeros(bytes_for<T>(p.source.channels));
  clear(zeros.as<T>(), p.source.channels);

  const Index parts = smaller(ceil_div(outputs, NR), ceil_div(kEnoughTasks, chunks));
  const Index part = round_up(ceil_div(outputs, parts), NR);
  parallel_for(chunks * parts, 1, [&](Index first_task, Index last_task) {
    for (Index task = first_task; task < last_task; ++task) {
      const Index begin = task % chunks * chunk, first = task / chunks * part;
      if (begin >= pixels || first >= outputs) continue;
      run_chunk(p, begin, smaller(begin + chunk, pixels), first, smaller(first + part, outputs),
                panels, zeros.as<const T>());
    }
  });
}

// Measured costs of a pointer and of a copied element, in units of a multiply-add at full speed.
constexpr double kPointerCost = 60, kScatterCost = 16;

template <class T>
double rows_cost(const TapProduct<T>& p) {
  const Index columns = round_up(p.out.channels, Blocking<T>::NR);
  const double seen = copies_patches(p) ? patch_cost(p.source, p.taps, p.tap_count)
                                        : kPointerCost * double(p.tap_count);
  const double written = is_linear(p.out) ? 0 : kScatterCost * double(p.out.channels);
  return double(p.grid.size()) * (double(columns * p.depth()) + seen + written);
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
