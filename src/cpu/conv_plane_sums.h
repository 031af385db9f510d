// The weight gradient on planes of pixels (conv_planes.h), for few channels: vectors run over the
// positions of a band, of the image's planes and of the gradient's, and each of the products
// (output channel, tap, input channel) has a vector of sums. conv2d_weight_grad.cc calls it.
// Between two rows the gradient's planes are zero, and meet a pixel that the tap may not see: an
// infinity or NaN in the image can so reach more taps than those that see it.
#pragma once

#include "conv_planes.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// A tile: 12 vectors of sums, 4 of the image and one of the gradient fit 16 registers.
constexpr int kSumRows = 3, kSumColumns = 4;

// sums[row * columns + column] += planes of the gradient times the image seen at the offsets.
template <class T>
[[gnu::noinline]] void sums_tile(Index positions, const T* grads, Index grad_size, const T* planes,
                                 const Index* offsets, Index columns, Vector<T>* sums) {
  Vector<T> acc[kSumRows][kSumColumns] = {};
  const T* sources[kSumColumns];
#pragma GCC unroll 4
  for (int c = 0; c < kSumColumns; ++c) sources[c] = planes + offsets[c];
  for (Index at = 0; at < positions; at += Blocking<T>::W) {
    Vector<T> seen[kSumColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kSumColumns; ++c) seen[c] = load(sources[c] + at);
#pragma GCC unroll 4
    for (int r = 0; r < kSumRows; ++r) {
      const Vector<T> grad = load(grads + r * grad_size + at);
#pragma GCC unroll 4
      for (int c = 0; c < kSumColumns; ++c) acc[r][c] += grad * seen[c];
    }
  }
  for (int r = 0; r < kSumRows; ++r) {
    for (int c = 0; c < kSumColumns; ++c) sums[r * columns + c] += acc[r][c];
  }
}

// The gradient's rows [row, row + rows) of image n, as planes of `size`; zeros between and behind.
template <class T>
void copy_gradient(const Image<const T>& grad, const PlaneLayout& layout, Index n, Index row,
                   Index rows, Index size, T* planes) {
  for (Index o = 0; o < grad.channels; ++o, planes += size) {
    T* to = planes;
    for (Index i = 0; i < rows; ++i, to += layout.pitch) {
      copy_columns<T>(grad.at(n, row + i, 0) + o * grad.channel_stride, grad.column_stride,
                      grad.width, to);
      clear(to + grad.width, layout.pitch - grad.width);
    }
    clear(to, planes + size - to);
  }
}

// What a weight gradient works on, and the room it needs.
template <class T>
struct PlaneSums {
  Image<const T> grad, x;
  const Tap* taps;
  Index tap_count;
  PlaneLayout layout;

  Index depth() const { return tap_count * x.channels; }
  Index rows() const { return round_up(grad.channels, kSumRows); }
  Index columns() const { return round_up(depth(), kSumColumns); }
  Index grad_size() const { return round_up(layout.positions(), Blocking<T>::W); }
  Index units() const { return grad.images * layout.bands; }  // of work
};

template <class T>
PlaneSums<T> plane_sums(const Image<const T>& grad, const Image<const T>& x, const Grid& grid,
                        const Tap* taps, Index count) {
  return {grad, x, taps, count, plane_layout(grid, taps, count, larger(x.channels, grad.channels))};
}

// partial (outputs, depth) = the sums over units [begin, end).
template <class T>
void sum_units(const PlaneSums<T>& p, const Index* offsets, Index begin, Index end, T* partial) {
  const Index rows = p.rows(), columns = p.columns(), size = p.grad_size();
  const Scratch planes(bytes_for<T>(plane_room<T>(p.layout, p.x.channels)));
  const Scratch grads(bytes_for<T>(rows * size));
  const Scratch sums(bytes_for<Vector<T>>(rows * columns));
  clear(grads.as<T>(), rows * size);
  clear(sums.as<T>(), rows * columns * Blocking<T>::W);
  for (Index unit = begin; unit < end; ++unit) {
    const Index n = unit / p.layout.bands, row = unit % p.layout.bands * p.layout.rows;
    const Index height = smaller(p.layout.rows, p.grad.height - row);
    copy_planes(p.x, p.layout, n, row, height, planes.as<T>());
    copy_gradient(p.grad, p.layout, n, row, height, size, grads.as<T>());
    for (Index o = 0; o < rows; o += kSumRows) {
      for (Index c = 0; c < columns; c += kSumColumns) {
        sums_tile<T>(height * p.layout.pitch, grads.as<T>() + o * size, size, planes.as<T>(),
                     offsets + c, columns, sums.as<Vector<T>>() + o * columns + c);
      }
    }
  }
  for (Index o = 0; o < p.grad.channels; ++o) {
    for (Index c = 0; c < p.depth(); ++c) {
      const T* lanes = sums.as<T>() + (o * columns + c) * Blocking<T>::W;
      T sum = T(0);
      for (Index lane = 0; lane < Blocking<T>::W; ++lane) sum += lanes[lane];
      *partial++ = sum;
    }
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
