// Convolution with few channels, for conv2d.cc. It uses vectors of output channels, and k runs over
// the elements of a window. A band is a group of image rows with their padding. In a band, a window
// is a few contiguous runs; in a dense image each kernel row is one run. A band is the image itself
// if there is no padding, otherwise a copy, so single pixels need no bounds checks. This file has
// the windows, the bands and the product; conv_spread.h and conv_window_sums.h have its gradients.
#pragma once

#include "conv_taps.h"
#include "core/thread_pool.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// The windows that the pixels of a grid have on an image.
template <class T>
struct Windows {
  Image<const T> image;
  Grid grid;
  Pair kernel, padding, dilation;
  bool copies = false;  // copies bands even if the image needs no padding

  bool merged() const { return dilation.w == 1; }  // a kernel row is one run
  Index runs() const { return merged() ? kernel.h : kernel.h * kernel.w; }
  Index run_length() const { return merged() ? kernel.w * image.channels : image.channels; }
  Index depth() const { return kernel.h * kernel.w * image.channels; }
  Index pixel_step() const { return grid.step.w * image.channels; }
  // The size of a band, in pixels.
  Index width() const { return (grid.columns - 1) * grid.step.w + (kernel.w - 1) * dilation.w + 1; }
  Index height(Index rows) const {
    return (rows - 1) * grid.step.h + (kernel.h - 1) * dilation.h + 1;
  }
  // Returns true if the image itself serves as the band, because all windows lie inside it. A
  // padding of 0 does not ensure that: conv_applied.h may leave out the kernel's first positions.
  bool in_place() const {
    return !copies && padding.h == 0 && padding.w == 0 && is_dense(image) &&
           height(grid.rows) <= image.height && width() <= image.width;
  }
  Index pitch() const { return in_place() ? image.row_stride : width() * image.channels; }
  Index room(Index rows) const { return in_place() ? 0 : height(rows) * pitch(); }
  Index run_offset(Index run) const {
    return merged() ? run * dilation.h * pitch()
                    : run / kernel.w * dilation.h * pitch() +
                          run % kernel.w * dilation.w * image.channels;
  }
};

template <class T>
Windows<T> windows_of(const Image<const T>& image, const Grid& grid, const View& weight,
                      const Geometry& geometry) {
  return {image, grid, {weight.shape[0], weight.shape[1]}, geometry.padding, geometry.dilation};
}

// Copies `n` adjacent pixels of an image row.
template <class T>
void copy_row(const Image<const T>& image, const T* from, Index n, T* to) {
  const Index channels = image.channels;
  if (is_dense(image)) {
    for (Index e = 0; e < n * channels; ++e) to[e] = from[e];
    return;
  }
  for (Index x = 0; x < n; ++x, from += image.column_stride, to += channels) {
    for (Index c = 0; c < channels; ++c) to[c] = from[c * image.channel_stride];
  }
}

// Returns the band that rows [row, row + rows) of the grid read from image n.
template <class T>
const T* band_of(const Windows<T>& w, Index n, Index row, Index rows, T* room) {
  const Image<const T>& image = w.image;
  const Index top = row * w.grid.step.h - w.padding.h, channels = image.channels;
  if (w.in_place()) return image.at(n, top, 0);
  const Index width = w.width(), left = smaller(w.padding.w, width);
  const Index right = larger(left, smaller(width, image.width + w.padding.w));
  T* to = room;
  for (Index y = top; y < top + w.height(rows); ++y, to += width * channels) {
    if (y < 0 || y >= image.height) {
      clear(to, width * channels);
      continue;
    }
    clear(to, left * channels);
    copy_row(image, image.at(n, y, 0), right - left, to + left * channels);
    clear(to + right * channels, (width - right) * channels);
  }
  return room;
}

// Returns the number of grid rows per band, for bands of about `elements` elements and equal size.
[[maybe_unused]] Index band_rows(const Grid& grid, Index elements_a_row, Index elements) {
  const Index most = larger(1, elements / larger(1, elements_a_row));
  return ceil_div(grid.rows, ceil_div(grid.rows, smaller(most, grid.rows)));
}

// ---- forward -----------------------------------------------------------------------------------

constexpr Index kBandElements = 6144;
constexpr Index kManyChannels = 32;   // from this many channels on conv_rows.h is fast
constexpr Index kTaskWork = 1 << 18;  // multiply-adds that are worth a task

// The number of pixels in a tile with V vectors of output channels.
template <int V>
constexpr int kTilePixels = V == 2 ? kTileRows : 8;

// Computes V vectors of output channels for R pixels. Sums start from `bias` and are clamped to at
// least `least`.
template <class T, int R, int V>
[[gnu::always_inline]] inline void window_sums(Index runs, Index length, const Index* run_offsets,
                                               const T* band, const Index* pixels, const T* weights,
                                               const T* bias, T least, Vector<T> (&acc)[R][V]) {
  constexpr Index W = Blocking<T>::W;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) acc[r][v] = load(bias + v * W);
  }
  for (Index run = 0; run < runs; ++run) {
    const T* seen[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) seen[r] = band + run_offsets[run] + pixels[r];
    for (Index e = 0; e < length; ++e, weights += V * W) {
      outer_product<T, R>(acc, weights, [&seen, e](int r) { return seen[r][e]; });
    }
  }
  const Vector<T> floor = Vector<T>{} + least;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) acc[r][v] = floor > acc[r][v] ? floor : acc[r][v];
  }
}

// Stores the first n columns of one pixel.
template <class T, int V>
[[gnu::always_inline]] inline void store_columns(const Vector<T> (&acc)[V], Index n, T* to) {
  T columns[V * Blocking<T>::W];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) store<T>(columns + v * Blocking<T>::W, acc[v]);
  put_columns<T, V * Blocking<T>::W / 2>(to, columns, n, false);
}

// Stores the first n channels of the first `rows` pixels of a tile. Pixels are `step` apart. If
// they are adjacent, a vector may reach into the next pixel, which is stored after it.
template <class T, int R, int V>
[[gnu::always_inline]] inline void store_pixels(const Vector<T> (&acc)[R][V], Index rows, Index n,
                                                T* to, Index step) {
  const bool whole = n == V * Blocking<T>::W;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r, to += step) {
    if (r >= rows) return;
    if (whole || (n == step && r * step + V * Blocking<T>::W <= rows * step)) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) store<T>(to + v * Blocking<T>::W, acc[r][v]);
    } else {
      store_columns<T, V>(acc[r], n, to);
    }
  }
}

template <class T, int V>
[[gnu::noinline]] void window_tile(Index runs, Index length, const Index* run_offsets,
                                   const T* band, const Index* pixels, const T* weights,
                                   const T* bias, T least, Index rows, Index n, T* to, Index step) {
  constexpr int R = kTilePixels<V>;
  Vector<T> acc[R][V];
  window_sums<T, R, V>(runs, length, run_offsets, band, pixels, weights, bias, least, acc);
  store_pixels<T, R, V>(acc, rows, n, to, step);
}

// A convolution by windows, and what its tasks share.
template <class T>
struct WindowProduct {
  Windows<T> windows;
  Image<T> out;
  Index rows;  // of a band
  const Index *run_offsets, *pixels;
  const T *weights, *bias;
  T least;

  Index bands() const { return ceil_div(windows.grid.rows, rows); }
};

// Returns R offsets of a list of `count`, from `first` on. Past its end, the last offset repeats.
template <int R>
[[gnu::always_inline]] inline const Index* tile_offsets(const Index* list, Index first, Index count,
                                                        Index (&last)[R]) {
  if (first + R <= count) return list + first;
  for (Index r = 0; r < R; ++r) last[r] = list[smaller(first + r, count - 1)];
  return last;
}

// Computes output channels [o, o + n) of `count` pixels.
template <class T, int V>
void panel_of_pixels(const WindowProduct<T>& p, const T* band, Index o, Index count, T* to,
                     Index step) {
  constexpr int R = kTilePixels<V>;
  const Windows<T>& w = p.windows;
  const Index n = smaller(V * Blocking<T>::W, p.out.channels - o);
  for (Index first = 0; first < count; first += R) {
    Index last[R];
    window_tile<T, V>(w.runs(), w.run_length(), p.run_offsets, band,
                      tile_offsets<R>(p.pixels, first, count, last), p.weights + o * w.depth(),
                      p.bias + o, p.least, smaller(R, count - first), n, to + first * step + o,
                      step);
  }
}

// Computes one band: in place, or through the buffer `aside` if the result's pixels are not
// contiguous.
template <class T>
void run_band(const WindowProduct<T>& p, Index unit, T* room, T* aside) {
  const Index n = unit / p.bands(), row = unit % p.bands() * p.rows, outputs = p.out.channels;
  const Index rows = smaller(p.rows, p.windows.grid.rows - row), count = rows * p.out.width;
  const T* band = band_of(p.windows, n, row, rows, room);
  T* to = aside != nullptr ? aside : p.out.at(n, row, 0);
  const Index step = aside != nullptr ? outputs : p.out.column_stride;
  for (Index o = 0; o < outputs; o += Blocking<T>::NR) {
    if (outputs - o > Blocking<T>::W) {
      panel_of_pixels<T, 2>(p, band, o, count, to, step);
    } else {
      panel_of_pixels<T, 1>(p, band, o, count, to, step);
    }
  }
  if (aside == nullptr) return;
  for (Index index = 0; index < count; ++index, aside += outputs) {
    T* pixel = p.out.at(n, row + index / p.out.width, index % p.out.width);
    for (Index o = 0; o < outputs; ++o) pixel[o * p.out.channel_stride] = aside[o];
  }
}

template <class T>
Index panels_size(const TapProduct<T>& p) {
  return round_up(p.out.channels, Blocking<T>::W) * p.depth();
}

// Packs the weights into panels with one row per (tap, channel). A panel has two vectors of output
// channels; the last may have one.
template <class T>
void pack_panels(const TapProduct<T>& p, T* packed) {
  const Index outputs = p.out.channels;
  for (Index o = 0; o < outputs; o += Blocking<T>::NR) {
    const Index width = outputs - o > Blocking<T>::W ? Blocking<T>::NR : Blocking<T>::W;
    for (Index t = 0; t < p.tap_count; ++t) {
      for (Index c = 0; c < p.source.channels; ++c, packed += width) {
        const T* from = p.weight + p.taps[t].weight + c * p.input_stride;
        for (Index e = 0; e < width; ++e) {
          packed[e] = o + e < outputs ? from[(o + e) * p.output_stride] : T(0);
        }
      }
    }
  }
}

// Computes where the runs of a window and the pixels of a band start.
template <class T>
void window_offsets(const Windows<T>& w, Index rows, Index* runs, Index* pixels) {
  for (Index run = 0; run < w.runs(); ++run) runs[run] = w.run_offset(run);
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < w.grid.columns; ++j) {
      *pixels++ = i * w.grid.step.h * w.pitch() + j * w.pixel_step();
    }
  }
}

template <class T>
void run_windows(const Windows<T>& w, const TapProduct<T>& p) {
  const Index outputs = p.out.channels, filled = round_up(outputs, Blocking<T>::W);
  const Index rows = band_rows(w.grid, w.grid.step.h * w.pitch(), kBandElements);
  const bool packs = p.prepared == nullptr;
  const Scratch weights(bytes_for<T>(packs ? panels_size(p) : 0)), bias(bytes_for<T>(filled));
  const Scratch runs(bytes_for<Index>(w.runs())), pixels(bytes_for<Index>(rows * w.grid.columns));
  if (packs) pack_panels(p, weights.as<T>());
  p.copy_bias(filled, bias.as<T>());
  window_offsets(w, rows, runs.as<Index>(), pixels.as<Index>());
  const WindowProduct<T> product{w,
                                 p.out,
                                 rows,
                                 runs.as<Index>(),
                                 pixels.as<Index>(),
                                 packs ? weights.as<T>() : p.prepared,
                                 bias.as<T>(),
                                 p.least};
  const bool linear = p.out.channel_stride == 1 &&
                      (rows == 1 || p.out.row_stride == p.out.width * p.out.column_stride);
  const Index work = rows * w.grid.columns * filled * w.depth();
  parallel_for(w.grid.images * product.bands(), ceil_div(kTaskWork, larger(1, work)),
               [&](Index first, Index last) {
                 const Scratch room(bytes_for<T>(w.room(rows)));
                 const Scratch aside(bytes_for<T>(linear ? 0 : rows * w.grid.columns * outputs));
                 for (Index unit = first; unit < last; ++unit) {
                   run_band(product, unit, room.as<T>(), linear ? nullptr : aside.as<T>());
                 }
               });
}

// Measured costs, in units of a multiply-add: of a pixel in a tile, of a run, of an element of a
// band; and a factor for multiply-adds in a tile of one vector.
constexpr double kWindowPixelCost = 64, kWindowRunCost = 20, kBandCost = 4, kThinCost = 1.125;

template <class T>
double windows_cost(const Windows<T>& w, Index outputs) {
  if (w.image.channels >= kManyChannels) return kNever;
  const Index wide = outputs % Blocking<T>::NR > Blocking<T>::W ? ceil_div(outputs, Blocking<T>::NR)
                                                                : outputs / Blocking<T>::NR;
  const Index thin = outputs > wide * Blocking<T>::NR ? 1 : 0;
  const Index pixels = w.grid.rows * w.grid.columns;
  const double sums = double(wide * round_up(pixels, kTilePixels<2>) * Blocking<T>::NR) +
                      kThinCost * double(thin * round_up(pixels, kTilePixels<1>) * Blocking<T>::W);
  const double tiles =
      (kWindowPixelCost + kWindowRunCost * double(w.runs())) * double((wide + thin) * pixels);
  return double(w.grid.images) *
         (sums * double(w.depth()) + tiles + kBandCost * double(w.room(w.grid.rows)));
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
