// Depthwise convolution (one filter per channel) and its weight gradient. Neither is a matrix
// product. The convolution adds up vectors of channels tap by tap, for a few neighbouring pixels
// whose sums stay in registers. The weight gradient sums a few taps over the pixels of a row. If
// the channels do not fill the last vector, it begins earlier. Contiguous channels that fill a
// vector are computed here; others are computed group by group, like any grouped convolution.
// conv2d.cc and conv2d_weight_grad.cc call it.
#pragma once

#include "conv_weight_grad.h"
#include "core/thread_pool.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

template <class T>
bool is_depthwise(const Image<const T>& a, const Image<const T>& b, const View& weight,
                  Index groups) {
  return weight.shape[2] == 1 && weight.shape[3] == groups && groups >= Blocking<T>::W &&
         a.channel_stride == 1 && b.channel_stride == 1;
}

// Finds the pixels [*first, *last) of a grid row whose columns j * step + dx lie in the image.
template <class T>
void seen_columns(const Image<const T>& image, const Grid& grid, Index dx, Index* first,
                  Index* last) {
  const Index step = grid.step.w;
  *first = smaller(grid.columns, ceil_div(larger(0, -dx), step));
  *last = dx < image.width ? smaller(grid.columns, ceil_div(image.width - dx, step)) : 0;
  *last = larger(*first, *last);
}

template <class T>
bool sees_row(const Image<const T>& image, const Grid& grid, Index row, const Tap& tap) {
  const Index y = row * grid.step.h + tap.dy;
  return y >= 0 && y < image.height;
}

// ---- the convolution, and its input gradient ---------------------------------------------------

template <class T>
struct Depthwise {
  Image<const T> source;
  Image<T> out;  // of the grid's size
  Grid grid;
  const Tap* taps;
  Index tap_count;
  const T *weight, *bias;  // (taps, channels); (channels)
  T least;
  bool triples;  // see in_triples
};

// Returns true if the taps form triples of adjacent columns in one row and the pixels of the grid
// are one column apart too: then a source pixel contributes to three sums.
[[maybe_unused]] bool in_triples(const Tap* taps, Index count, const Grid& grid) {
  bool all = count % 3 == 0 && grid.step.w == 1;
  for (Index t = 0; all && t < count; ++t) {
    const Tap& first = taps[t / 3 * 3];
    all = taps[t].dy == first.dy && taps[t].dx == first.dx + t % 3;
  }
  return all;
}

// A tap that pixels read: the offset of the position that it reads, and its filters.
template <class T>
struct SeenTap {
  Index offset;
  const T* filters;
};

constexpr int kPixelsAtOnce = 4, kTriplePixels = 8;

// Adds the products of all taps to the sums of P pixels, for the vector of channels that starts at
// c. Pixels are `step` apart in the source.
template <class T, int P>
[[gnu::always_inline]] inline void add_taps(const SeenTap<T>* taps, Index count, Index c,
                                            const T* from, Index step, Vector<T> (&sums)[P]) {
  for (Index t = 0; t < count; ++t) {
    const Vector<T> filter = load(taps[t].filters + c);
    const T* seen = from + taps[t].offset + c;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) sums[p] += filter * load(seen + p * step);
  }
}

// Does the same in the same order for triples of taps: each source pixel is loaded once for three
// sums.
template <class T, int P>
[[gnu::always_inline]] inline void add_triples(const SeenTap<T>* taps, Index count, Index c,
                                               const T* from, Index step, Vector<T> (&sums)[P]) {
  for (Index t = 0; t < count; t += 3) {
    const Vector<T> filters[3] = {load(taps[t].filters + c), load(taps[t + 1].filters + c),
                                  load(taps[t + 2].filters + c)};
    const T* seen = from + taps[t].offset + c;
#pragma GCC unroll 10
    for (int column = 0; column < P + 2; ++column) {
      const Vector<T> pixel = load(seen + column * step);
#pragma GCC unroll 3
      for (int k = 0; k < 3; ++k) {
        if (column - k >= 0 && column - k < P) sums[column - k] += filters[k] * pixel;
      }
    }
  }
}

// Returns the first pixel that the next row of the grid reads and `row` does not.
template <class T>
const T* source_ahead(const Depthwise<T>& d, const Pixel& row) {
  const Index bottom = d.tap_count > 0 ? d.taps[d.tap_count - 1].dy : 0;
  Index y = row.i * d.grid.step.h + bottom + 1, n = row.n;
  if (y >= d.source.height) y -= d.source.height, ++n;
  const bool exists = n < d.source.images && y >= 0 && y < d.source.height;
  return exists ? d.source.at(n, y, 0) : d.source.data;
}

// Computes P pixels of a row from `first` on, whose taps all lie in the image. Channels are the
// outer loop, so rows of pixels are not read in memory order; the next row is prefetched meanwhile.
template <class T, int P, bool kTriples = false>
[[gnu::noinline]] void depthwise_pixels(const Depthwise<T>& d, const Pixel& row, Index first,
                                        const SeenTap<T>* taps, Index count) {
  constexpr Index W = Blocking<T>::W;
  const T* ahead = source_ahead(d, row) + first * d.grid.step.w * d.source.column_stride;
  const Index step = d.grid.step.w * d.source.column_stride;
  const T* from = d.source.at(row.n, row.i * d.grid.step.h, first * d.grid.step.w);
  T* to = d.out.at(row.n, row.i, first);
  const Vector<T> floor = Vector<T>{} + d.least;
  for (Index begin = 0; begin < d.out.channels; begin += W) {
    const Index c = smaller(begin, d.out.channels - W);
    if (c * Index{sizeof(T)} % 64 < Index{sizeof(Vector<T>)}) {
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) __builtin_prefetch(ahead + c + p * step);
    }
    Vector<T> sums[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) sums[p] = load(d.bias + c);
    if constexpr (kTriples) {
      add_triples<T, P>(taps, count, c, from, step, sums);
    } else {
      add_taps<T, P>(taps, count, c, from, step, sums);
    }
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      store<T>(to + c + p * d.out.column_stride, floor > sums[p] ? floor : sums[p]);
    }
  }
}

// Writes the taps of pixel j that lie inside the image to `seen` and returns their number. If j is
// negative, only the row of a tap must be inside.
template <class T>
Index seen_taps(const Depthwise<T>& d, Index row, Index j, SeenTap<T>* seen) {
  Index count = 0;
  for (Index t = 0; t < d.tap_count; ++t) {
    const Tap& tap = d.taps[t];
    const Index x = j * d.grid.step.w + tap.dx;
    if (!sees_row(d.source, d.grid, row, tap)) continue;
    if (j >= 0 && (x < 0 || x >= d.source.width)) continue;
    seen[count++] = {tap.dy * d.source.row_stride + tap.dx * d.source.column_stride,
                     d.weight + t * d.out.channels};
  }
  return count;
}

// Computes pixels [j, last) in groups of P; the last group may overlap the previous one. Computes
// none if there are fewer than P. Returns the first pixel that is left.
template <class T, int P, bool kTriples>
Index pixels_at_once(const Depthwise<T>& d, const Pixel& row, Index j, Index last,
                     const SeenTap<T>* taps, Index count) {
  if (last - j < P) return j;
  for (; j < last; j += P) {
    depthwise_pixels<T, P, kTriples>(d, row, smaller(j, last - P), taps, count);
  }
  return last;
}

template <class T>
void depthwise_row(const Depthwise<T>& d, const Pixel& row, SeenTap<T>* taps) {
  Index first = 0, last = d.grid.columns;  // the pixels that see the most taps
  for (Index t = 0; t < d.tap_count; ++t) {
    Index from = 0, to = 0;
    seen_columns(d.source, d.grid, d.taps[t].dx, &from, &to);
    first = larger(first, from), last = smaller(last, to);
  }
  Index j = 0;
  for (; j < smaller(first, d.grid.columns); ++j) {
    depthwise_pixels<T, 1>(d, row, j, taps, seen_taps(d, row.i, j, taps));
  }
  const Index count = seen_taps(d, row.i, -1, taps);
  if (d.triples) j = pixels_at_once<T, kTriplePixels, true>(d, row, j, last, taps, count);
  j = pixels_at_once<T, kPixelsAtOnce, false>(d, row, j, last, taps, count);
  j = pixels_at_once<T, 1, false>(d, row, j, last, taps, count);
  for (; j < d.grid.columns; ++j) {
    depthwise_pixels<T, 1>(d, row, j, taps, seen_taps(d, row.i, j, taps));
  }
}

// `bias` has one value per channel, contiguous, or is null.
template <class T>
void depthwise(const Image<const T>& source, const Image<T>& out, const Grid& grid, const Tap* taps,
               Index tap_count, const View& weight, const T* bias, T least) {
  if (grid.size() == 0) return;
  const Index channels = out.channels;
  const ThreadScratch filters(bytes_for<T>(tap_count * channels)), biases(bytes_for<T>(channels));
  for (Index c = 0; c < channels; ++c) biases.as<T>()[c] = bias != nullptr ? bias[c] : T(0);
  for (Index t = 0; t < tap_count; ++t) {
    const T* from = data_of<const T>(weight) + taps[t].weight;
    for (Index c = 0; c < channels; ++c) {
      filters.as<T>()[t * channels + c] = from[c * weight.strides[3]];
    }
  }
  const Depthwise<T> d{source,         out,       grid,
                       taps,           tap_count, filters.as<const T>(),
                       biases.as<T>(), least,     in_triples(taps, tap_count, grid)};
  parallel_for(grid.images * grid.rows, 4, [&](Index begin, Index end) {
    const ThreadScratch seen(bytes_for<SeenTap<T>>(tap_count));
    for (Index row = begin; row < end; ++row) {
      depthwise_row(d, {row / grid.rows, row % grid.rows, 0}, seen.as<SeenTap<T>>());
    }
  });
}

// ---- the weight gradient -----------------------------------------------------------------------

constexpr int kTapsAtOnce = 4;

// Adds source times gradient over n pixels to sums[t], for each of K taps and V vectors of
// channels. The first `skip` lanes of the last vector add nothing.
template <class T, int K, int V>
[[gnu::always_inline]] inline void tap_sums(Index n, const T* const* x, Index x_step, const T* grad,
                                            Index grad_step, Index skip, T* const* sums) {
  constexpr Index W = Blocking<T>::W;
  T counted[W];
  for (Index e = 0; e < W; ++e) counted[e] = T(e >= skip ? 1 : 0);
  const auto real = load(counted) > Vector<T>{};
  const T* seen[K];
  Vector<T> acc[K][V] = {};
#pragma GCC unroll 4
  for (int k = 0; k < K; ++k) seen[k] = x[k];
  Index x_offset = 0;
  for (Index j = 0; j < n; ++j, grad += grad_step, x_offset += x_step) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      Vector<T> g = load(grad + v * W);
      if (v == V - 1) g = real ? g : Vector<T>{};
#pragma GCC unroll 4
      for (int k = 0; k < K; ++k) acc[k][v] += g * load(seen[k] + x_offset + v * W);
    }
  }
#pragma GCC unroll 4
  for (int k = 0; k < K; ++k) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store<T>(sums[k] + v * W, load(sums[k] + v * W) + acc[k][v]);
  }
}

// Adds K taps of one kernel row over pixels [first, last) of a row to `sums` (taps, channels).
template <class T, int K>
[[gnu::noinline]] void taps_of_row(const WeightGradient<T>& d, const Pixel& row, Index first,
                                   Index last, Index tap, T* sums) {
  constexpr Index W = Blocking<T>::W;
  if (first >= last) return;
  const Index channels = d.x.channels, step = d.grid.step.w * d.x.column_stride;
  const T* grad = d.grad.at(row.n, row.i, first);
  const T* x[K];
  T* to[K];
  for (int k = 0; k < K; ++k) {
    const Tap& t = d.taps[tap + k];
    x[k] = d.x.at(row.n, row.i * d.grid.step.h + t.dy, first * d.grid.step.w + t.dx);
    to[k] = sums + (tap + k) * channels;
  }
  const auto move = [&](Index by) {
    grad += by;
    for (int k = 0; k < K; ++k) x[k] += by, to[k] += by;
  };
  Index c = 0;
  for (; c + 2 * W <= channels; c += 2 * W, move(2 * W)) {
    tap_sums<T, K, 2>(last - first, x, step, grad, d.grad.column_stride, 0, to);
  }
  for (; c < channels; c += W) {
    const Index early = larger(0, c + W - channels);  // lanes that the previous vector has counted
    move(-early);
    tap_sums<T, K, 1>(last - first, x, step, grad, d.grad.column_stride, early, to);
    move(W + early);
  }
}

// Computes adjacent taps: together for the pixels where all of them lie in the image, one by one
// for the others.
template <class T>
void tap_run(const WeightGradient<T>& d, const Pixel& row, Index tap, Index count, T* sums) {
  Index first[kTapsAtOnce], last[kTapsAtOnce], all_first = 0, all_last = d.grid.columns;
  for (Index k = 0; k < count; ++k) {
    seen_columns(d.x, d.grid, d.taps[tap + k].dx, &first[k], &last[k]);
    all_first = larger(all_first, first[k]), all_last = smaller(all_last, last[k]);
  }
  all_last = larger(all_first, all_last);
  if (count == 4) taps_of_row<T, 4>(d, row, all_first, all_last, tap, sums);
  if (count == 3) taps_of_row<T, 3>(d, row, all_first, all_last, tap, sums);
  if (count == 2) taps_of_row<T, 2>(d, row, all_first, all_last, tap, sums);
  for (Index k = 0; k < count; ++k) {
    if (count == 1) {
      taps_of_row<T, 1>(d, row, first[k], last[k], tap, sums);
    } else {
      taps_of_row<T, 1>(d, row, first[k], smaller(all_first, last[k]), tap + k, sums);
      taps_of_row<T, 1>(d, row, larger(all_last, first[k]), last[k], tap + k, sums);
    }
  }
}

// Computes sums (taps, channels) over rows [begin, end) of the grid, counted over all images.
template <class T>
void sum_rows(const WeightGradient<T>& d, Index begin, Index end, T* sums) {
  for (Index e = 0; e < d.tap_count * d.x.channels; ++e) sums[e] = T(0);
  for (Index row = begin; row < end; ++row) {
    const Pixel pixel{row / d.grid.rows, row % d.grid.rows, 0};
    for (Index t = 0; t < d.tap_count;) {
      Index count = 1;
      while (count < kTapsAtOnce && t + count < d.tap_count &&
             d.taps[t + count].dy == d.taps[t].dy) {
        ++count;
      }
      if (sees_row(d.x, d.grid, pixel.i, d.taps[t])) tap_run(d, pixel, t, count, sums);
      t += count;
    }
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
