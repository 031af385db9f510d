// The weight gradient of a convolution by windows (conv_windows.h), for conv2d_weight_grad.cc. It
// sums (element of a window) x (output channel) over the pixels of a band. The sums stay in
// registers, as vectors of output channels for some adjacent elements of a run. Neither the image
// nor the gradient is packed, and copies are made only for padding.
#pragma once

#include "conv_windows.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// Multiplies R adjacent elements of each of P runs by V vectors of the gradient's channels, and
// adds the products of all pixels in `rows` rows to `sums`. x[p] points to the first element of run
// p as the first pixel sees it.
template <class T, int P, int R, int V>
[[gnu::noinline]] void run_sums_tile(Index rows, Index columns, const T* const* x, Index x_row,
                                     Index x_step, const T* grad, Index grad_row, Index grad_step,
                                     T* const* sums, Index sums_step) {
  constexpr Index W = Blocking<T>::W;
  Vector<T> acc[P * R][V] = {};
  Index row_at = 0;
  for (Index i = 0; i < rows; ++i, row_at += x_row, grad += grad_row) {
    const T *a = x[0] + row_at, *b = x[P - 1] + row_at, *g = grad;
    for (Index j = 0; j < columns; ++j, a += x_step, b += x_step, g += grad_step) {
      outer_product<T, P * R>(acc, g, [a, b](int r) { return r < R ? a[r] : b[r - R]; });
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < P * R; ++r) {
    T* to = sums[r / R] + r % R * sums_step;
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store<T>(to + v * W, load(to + v * W) + acc[r][v]);
  }
}

template <class T>
using RunSumsTile = void (*)(Index, Index, const T* const*, Index, Index, const T*, Index, Index,
                             T* const*, Index);

// The maximum number of elements of a run in a tile.
constexpr int kRunElements = kTileRows < 6 ? kTileRows : 6;

template <class T, int P, int V, int R = kRunElements>
RunSumsTile<T> run_sums_tile_of(Index elements) {
  if constexpr (R > 1) {
    if (elements < R) return run_sums_tile_of<T, P, V, R - 1>(elements);
  }
  return &run_sums_tile<T, P, R, V>;
}

// What tasks share. The units of work are bands of images.
template <class T>
struct WindowSums {
  Windows<T> windows;
  Image<const T> grad;
  Index rows;      // of a band
  Index elements;  // of a run in a tile, except the last

  Index filled() const { return round_up(grad.channels, Blocking<T>::W); }
  Index bands() const { return ceil_div(windows.grid.rows, rows); }
  Index units() const { return grad.images * bands(); }
  Index partial_size() const { return windows.depth() * filled(); }
};

template <class T>
WindowSums<T> window_sums_of(const Windows<T>& w, const Image<const T>& grad) {
  const Index row = w.grid.step.h * w.pitch() + w.grid.columns * grad.channels;
  const Index tiles = ceil_div(w.run_length(), kRunElements);
  return {w, grad, band_rows(w.grid, row, kBandElements), ceil_div(w.run_length(), tiles)};
}

// Rows of the gradient with contiguous channels.
template <class T>
struct GradRows {
  const T* data;
  Index row_stride, column_stride;
};

// Returns the rows in place, or as a copy in `room`. Channels are read in whole vectors, which must
// not reach past the end of the gradient.
template <class T>
GradRows<T> grad_rows(const WindowSums<T>& s, Index n, Index row, Index rows, T* room) {
  const Image<const T>& grad = s.grad;
  const T* last = grad.at(n, row + rows - 1, grad.width - 1);
  if (grad.channel_stride == 1 && last + s.filled() <= end_of(grad)) {
    return {grad.at(n, row, 0), grad.row_stride, grad.column_stride};
  }
  const Index size = grad.width * grad.channels;
  for (Index i = 0; i < rows; ++i)
    copy_row(grad, grad.at(n, row + i, 0), grad.width, room + i * size);
  return {room, size, grad.channels};
}

// Computes P runs, from `run` on, for V vectors of output channels, from o on. With one vector of
// channels a tile takes two runs, to hide the latency of the sums.
template <class T, int P, int V>
void sum_runs(const WindowSums<T>& s, Index rows, const T* band, const GradRows<T>& grad, Index run,
              Index o, T* partial) {
  const Windows<T>& w = s.windows;
  const Index length = w.run_length(), filled = s.filled();
  for (Index e = 0; e < length; e += s.elements) {
    const T* seen[P];
    T* sums[P];
    for (Index p = 0; p < P; ++p) {
      seen[p] = band + w.run_offset(run + p) + e;
      sums[p] = partial + ((run + p) * length + e) * filled + o;
    }
    run_sums_tile_of<T, P, V>(smaller(s.elements, length - e))(
        rows, w.grid.columns, seen, w.grid.step.h * w.pitch(), w.pixel_step(), grad.data + o,
        grad.row_stride, grad.column_stride, sums, filled);
  }
}

// Computes one band's part of the sums.
template <class T>
void sum_band(const WindowSums<T>& s, Index rows, const T* band, const GradRows<T>& grad,
              T* partial) {
  const Index runs = s.windows.runs(), outputs = s.grad.channels;
  for (Index o = 0; o < outputs; o += Blocking<T>::NR) {
    const bool wide = outputs - o > Blocking<T>::W;
    Index run = 0;
    for (; !wide && run + 2 <= runs; run += 2)
      sum_runs<T, 2, 1>(s, rows, band, grad, run, o, partial);
    for (; run < runs; ++run) {
      if (wide) {
        sum_runs<T, 1, 2>(s, rows, band, grad, run, o, partial);
      } else {
        sum_runs<T, 1, 1>(s, rows, band, grad, run, o, partial);
      }
    }
  }
}

// Computes a partial result (depth, filled): the sums over units [begin, end).
template <class T>
void sum_units(const WindowSums<T>& s, Index begin, Index end, T* partial) {
  const Windows<T>& w = s.windows;
  const ThreadScratch room(bytes_for<T>(w.room(s.rows)));
  const ThreadScratch grads(
      bytes_for<T>(s.rows * s.grad.width * s.grad.channels + Blocking<T>::NR));
  clear(grads.as<T>(), s.rows * s.grad.width * s.grad.channels + Blocking<T>::NR);
  clear(partial, s.partial_size());
  for (Index unit = begin; unit < end; ++unit) {
    const Index n = unit / s.bands(), row = unit % s.bands() * s.rows;
    const Index rows = smaller(s.rows, w.grid.rows - row);
    sum_band(s, rows, band_of(w, n, row, rows, room.as<T>()),
             grad_rows(s, n, row, rows, grads.as<T>()), partial);
  }
}

// Measured costs, in units of a multiply-add: of a tile, of storing and loading its sums, and of a
// row of its pixels.
constexpr double kSumsCost = 480, kRowCost = 100;

template <class T>
double window_sums_cost(const WindowSums<T>& s) {
  const Windows<T>& w = s.windows;
  const Index tiles = w.runs() * ceil_div(w.run_length(), s.elements);
  const double vectors = double(ceil_div(s.grad.channels, Blocking<T>::W));
  const double row = kRowCost + double(w.grid.columns * s.elements * Blocking<T>::NR);
  return double(s.units() * tiles) * vectors / 2 * (kSumsCost + double(s.rows) * row);
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
