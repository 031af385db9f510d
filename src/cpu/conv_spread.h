// The input gradient of a convolution with few input channels, for conv2d.cc. It multiplies the
// pixels of the output gradient by the weights; k runs over the output channels. A row of the
// product is what one gradient pixel contributes to the runs of its window (conv_windows.h). It is
// added to a band, the middle of which is the image. Zeros from padding or strides are never
// multiplied.
#pragma once

#include "conv_windows.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// A mask of vector lanes: all ones for lanes in use, else zeros. A panel's last vector needs it.
template <class T>
using Mask = decltype(Vector<T>{} < Vector<T>{});

template <class T>
[[gnu::always_inline]] inline Mask<T> first_lanes(Index n) {
  T lanes[Blocking<T>::W];
  for (Index e = 0; e < Blocking<T>::W; ++e) lanes[e] = T(e);
  return load(lanes) < Vector<T>{} + T(n);
}

// Multiplies R pixels of the gradient, which have `outputs` channels, by V vectors of a run's
// weights, and adds the products to `bands`. `pixels` and `places` locate the rows in `grad` and in
// `bands`.
template <class T, int V, bool kShort>
[[gnu::noinline]] void spread_tile(Index outputs, const T* grad, const Index* pixels, Index step,
                                   const T* weights, T* bands, const Index* places, Index rows,
                                   const Mask<T>& real) {
  constexpr int R = kTilePixels<V>;
  constexpr Index W = Blocking<T>::W;
  Vector<T> acc[R][V] = {};
  const T* seen[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) seen[r] = grad + pixels[r];
  Index offset = 0;
  add_in_parts<T, kShort>(outputs, acc, [&] {
    outer_product<T, R>(acc, weights, [&seen, offset](int r) { return seen[r][offset]; });
    weights += V * W, offset += step;
  });
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    if (r >= rows) return;
    T* to = bands + places[r];
    acc[r][V - 1] = real ? acc[r][V - 1] : Vector<T>{};
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store<T>(to + v * W, load(to + v * W) + acc[r][v]);
  }
}

// What all tasks share. Each pixel of `grad` has a window of `x_grad`.
template <class T>
struct WindowSpread {
  Windows<T> windows;  // image: x_grad; bands are always copies
  Image<const T> grad;
  Image<T> x_grad;
  Index images;  // of a task
  const T* weights;
  const Index *pixels, *places;  // of each row of the task's images, in grad and in the bands

  Index band_size() const { return windows.room(windows.grid.rows); }
};

// Computes V vectors of run `run`, from element e on, for all pixels of images [n, n + images). A
// tile takes pixels of one column, because their positions do not overlap.
template <class T, int V>
void spread_panel(const WindowSpread<T>& s, Index n, Index images, Index run, Index e, T* bands) {
  constexpr int R = kTilePixels<V>;
  const Windows<T>& w = s.windows;
  const Index count = images * w.grid.rows, length = w.run_length();
  const T* weights = s.weights + (run * round_up(length, Blocking<T>::W) + e) * s.grad.channels;
  const Mask<T> real = first_lanes<T>(length - e - (V - 1) * Blocking<T>::W);
  const auto tile = partial_of(s.grad.channels) == s.grad.channels ? &spread_tile<T, V, true>
                                                                   : &spread_tile<T, V, false>;
  T* to = bands + w.run_offset(run) + e;
  for (Index j = 0; j < w.grid.columns; ++j, to += w.pixel_step()) {
    for (Index first = 0; first < count; first += R) {
      Index last[R];
      tile(s.grad.channels, s.grad.at(n, 0, j), tile_offsets<R>(s.pixels, first, count, last),
           s.grad.channel_stride, weights, to, s.places + first, smaller(R, count - first), real);
    }
  }
}

// Copies the part of a band that belongs to the image.
template <class T>
void copy_band(const Windows<T>& w, const T* band, const Image<T>& image, Index n) {
  const Index channels = image.channels, pitch = w.pitch();
  const Index width = larger(0, smaller(image.width, w.width() - w.padding.w));  // that was seen
  band += w.padding.h * pitch + w.padding.w * channels;
  for (Index y = 0; y < image.height; ++y, band += pitch) {
    const Index seen = y + w.padding.h < w.height(w.grid.rows) ? width : 0;
    T* to = image.at(n, y, 0);
    if (is_dense(image)) {
      for (Index e = 0; e < seen * channels; ++e) to[e] = band[e];
      clear(to + seen * channels, (image.width - seen) * channels);
      continue;
    }
    for (Index x = 0; x < image.width; ++x, to += image.column_stride) {
      for (Index c = 0; c < channels; ++c) {
        to[c * image.channel_stride] = x < seen ? band[x * channels + c] : T(0);
      }
    }
  }
}

// Packs the weights of each run into panels with one row per output channel. A panel has two
// vectors of the run's elements; the last may have one.
template <class T>
void pack_runs(const TapProduct<T>& p, const Windows<T>& w, T* packed) {
  constexpr Index W = Blocking<T>::W, NR = Blocking<T>::NR;
  const Index length = w.run_length(), inputs = w.image.channels;
  for (Index run = 0; run < w.runs(); ++run) {
    for (Index e = 0; e < length; e += NR) {
      const Index width = length - e > W ? NR : W;
      for (Index o = 0; o < p.source.channels; ++o, packed += width) {
        for (Index l = 0; l < width; ++l) {
          const Index tap = (run * length + e + l) / inputs, c = (e + l) % inputs;
          packed[l] = e + l < length
                          ? p.weight[p.taps[tap].weight + o * p.input_stride + c * p.output_stride]
                          : T(0);
        }
      }
    }
  }
}

// Returns the number of images per task: as many as fit the cache, but few enough for several
// tasks.
template <class T>
Index spread_images(const Windows<T>& w) {
  return larger(1, smaller(kBandElements / w.room(w.grid.rows), w.grid.images / 16));
}

// `p` is the product from grad to x_grad, with its taps in the kernel's order. `w` has the windows
// of grad's pixels.
template <class T>
void run_spread(Windows<T> w, const TapProduct<T>& p) {
  w.copies = true;
  constexpr Index W = Blocking<T>::W, NR = Blocking<T>::NR;
  const Index length = w.run_length(), outputs = p.source.channels;
  const Scratch weights(bytes_for<T>(w.runs() * round_up(length, W) * outputs));
  pack_runs(p, w, weights.as<T>());
  const Index rows = w.grid.rows, size = w.room(rows);
  const Index images = spread_images(w);
  const Index listed = images * rows;
  const Scratch pixels(bytes_for<Index>(listed)), places(bytes_for<Index>(listed));
  for (Index index = 0; index < listed; ++index) {
    const Index image = index / rows, row = index % rows;
    pixels.as<Index>()[index] = image * p.source.image_stride + row * p.source.row_stride;
    places.as<Index>()[index] = image * size + row * w.grid.step.h * w.pitch();
  }
  const WindowSpread<T> s{
      w, p.source, p.out, images, weights.as<T>(), pixels.as<Index>(), places.as<Index>()};
  const Index room = images * size + NR;
  parallel_for(w.grid.images, images, [&](Index first, Index last) {
    const Scratch bands(bytes_for<T>(room));
    clear(bands.as<T>(), room);
    for (Index run = 0; run < w.runs(); ++run) {
      for (Index e = 0; e < length; e += NR) {
        if (length - e > W) {
          spread_panel<T, 2>(s, first, last - first, run, e, bands.as<T>());
        } else {
          spread_panel<T, 1>(s, first, last - first, run, e, bands.as<T>());
        }
      }
    }
    for (Index n = first; n < last; ++n) {
      copy_band(w, bands.as<const T>() + (n - first) * size, p.out, n);
    }
  });
}

// Measured costs, in multiply-adds: of adding one or two vectors to a band, of an element of the
// result, and of a weight that a task reads. The model assumes one task per image.
constexpr double kAddCost = 128, kResultCost = 8, kWeightReadCost = 4;
constexpr Index kFewestImages = 4;

template <class T>
double spread_cost(Windows<T> w, const TapProduct<T>& p) {
  constexpr Index W = Blocking<T>::W, NR = Blocking<T>::NR;
  w.copies = true;
  if (w.grid.images < kFewestImages || w.grid.size() == 0) return kNever;
  const Index length = w.run_length(), pixels = w.grid.rows * w.grid.columns;
  const Index wide = length % NR > W ? ceil_div(length, NR) : length / NR;
  const Index thin = length > wide * NR ? 1 : 0;
  const double sums =
      (double(wide * NR) + kThinCost * double(thin * W)) * double(p.source.channels);
  const double runs = double(w.runs() * pixels) * (sums + kAddCost * double(wide + thin));
  const double weights = double(w.depth() * p.source.channels) / double(spread_images(w));
  return double(w.grid.images) *
         (runs + kResultCost * double(w.room(w.grid.rows)) + kWeightReadCost * weights);
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
