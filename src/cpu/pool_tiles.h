// Pooling with adjacent windows (stride = kernel), the usual case, for pooling.cc. It processes a
// row of windows at a time, all of them inside the image. If a pixel has fewer channels than a
// vector, the pixels of a row must be contiguous; a vector then overlaps the next pixel, whose own
// values are written later.
#pragma once

#include "core/kernel_table.h"
#include "core/thread_pool.h"
#include "pool_pixels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

using Index = std::int64_t;

template <class T>
T* element_at(const View& v, Index n, Index y, Index x, Index c) {
  return data_of<T>(v) + n * v.strides[0] + y * v.strides[1] + x * v.strides[2] + c * v.strides[3];
}

bool side_by_side(const Pool2dParams& p) {
  return p.kernel.h == p.stride.h && p.kernel.w == p.stride.w && p.padding.h == 0 &&
         p.padding.w == 0;
}

// Returns true if the channels of `v` can be loaded as vectors.
template <class T>
bool takes_vectors(const View& v) {
  if (v.shape[3] != 1 && v.strides[3] != 1) return false;
  return v.shape[3] >= simd::kLanes<T> || v.strides[2] == v.shape[3];
}

// Returns for how many windows of a row, from the first on, the vectors of all `kernel` pixels end
// within the row.
template <class T>
Index whole_vectors(const View& v, Index kernel) {
  const Index channels = v.shape[3], reached = (simd::kLanes<T> + channels - 1) / channels;
  const Index first_of_last = v.shape[2] - reached - (kernel - 1);
  return first_of_last < 0 ? 0 : first_of_last / kernel + 1;
}

// Calls f(n, i) for every row of pixels of `image`, distributed over the threads.
template <class F>
void each_row(const View& image, F&& f) {
  const Index rows = image.shape[1];
  parallel_for(image.shape[0] * rows, 4, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) f(task / rows, task % rows);
  });
}

// Calls f(window of a view, ...) with one window per view.
template <class F, class... Views>
void with_windows(const Pool2dParams& p, F&& f, const Views&... views) {
  if (p.kernel.h == 2 && p.kernel.w == 2) {
    f(FixedPixels<2, 2>{views.strides[1], views.strides[2]}...);
  } else {
    f(Pixels{p.kernel.h, p.kernel.w, views.strides[1], views.strides[2]}...);
  }
}

template <class T, class Fold>
void fold_tiles(const View& x, const View& out, const Pool2dParams& p, const Fold& fold) {
  if (size_of(out) == 0) return;
  const Index channels = x.shape[3], columns = out.shape[2];
  const Index x_step = p.kernel.w * x.strides[2], out_step = out.strides[2];
  const Index in_x = whole_vectors<T>(x, p.kernel.w), in_out = whole_vectors<T>(out, 1);
  const Index whole = in_x < in_out ? in_x : in_out;
  const auto fold_rows = [&](auto window) {
    each_row(out, [=, &x, &out](Index n, Index i) {
      const T* from = element_at<const T>(x, n, i * p.kernel.h, 0, 0);
      T* to = element_at<T>(out, n, i, 0, 0);
      for (Index j = 0; j < columns; ++j, from += x_step, to += out_step) {
        fold_pixels(fold, from, window, channels, j < whole, to);
      }
    });
  };
  with_windows(p, fold_rows, x);
}

// Zeroes pixels [left, right) of rows [top, bottom) of image n.
template <class T>
void clear_pixels(const View& image, Index n, Index top, Index bottom, Index left, Index right) {
  for (Index y = top; y < bottom; ++y) {
    for (Index x = left; x < right; ++x) {
      T* to = element_at<T>(image, n, y, x, 0);
      for (Index c = 0; c < image.shape[3]; ++c) to[c] = T(0);
    }
  }
}

// Calls write(n, i) for every row of windows; pixels in no window get zeros. Requires at least one
// window.
template <class T, class Write>
void tile_gradient(const View& grad, const View& x_grad, const Pool2dParams& p, Write&& write) {
  const Index height = x_grad.shape[1], width = x_grad.shape[2];
  each_row(grad, [&](Index n, Index i) {
    write(n, i);
    const Index top = i * p.kernel.h, bottom = top + p.kernel.h;
    clear_pixels<T>(x_grad, n, top, bottom, grad.shape[2] * p.kernel.w, width);
    if (i + 1 == grad.shape[1]) clear_pixels<T>(x_grad, n, bottom, height, 0, width);
  });
}

template <class T>
void split_tiles(const View& grad, const View& x, const View& x_grad, const Pool2dParams& p) {
  const Index channels = x.shape[3], columns = grad.shape[2], grad_step = grad.strides[2];
  const Index x_step = p.kernel.w * x.strides[2], to_step = p.kernel.w * x_grad.strides[2];
  const Index in_x = whole_vectors<T>(x, p.kernel.w), in_grad = whole_vectors<T>(grad, 1);
  const Index whole = in_x < in_grad ? in_x : in_grad;
  const auto split_rows = [&](auto seen, auto written) {
    tile_gradient<T>(grad, x_grad, p, [=, &grad, &x, &x_grad](Index n, Index i) {
      const T *from = element_at<const T>(x, n, i * p.kernel.h, 0, 0),
              *g = element_at<const T>(grad, n, i, 0, 0);
      T* to = element_at<T>(x_grad, n, i * p.kernel.h, 0, 0);
      for (Index j = 0; j < columns; ++j, from += x_step, to += to_step, g += grad_step) {
        split_pixels(from, seen, g, channels, j < whole, to, written);
      }
    });
  };
  with_windows(p, split_rows, x, x_grad);
}

template <class T>
void spread_tiles(const View& grad, const View& x_grad, T share, const Pool2dParams& p) {
  const Index channels = grad.shape[3], columns = grad.shape[2], grad_step = grad.strides[2];
  const Index to_step = p.kernel.w * x_grad.strides[2];
  const Index in_x = whole_vectors<T>(x_grad, p.kernel.w);
  const Index in_grad = whole_vectors<T>(grad, 1), whole = in_x < in_grad ? in_x : in_grad;
  const auto spread_rows = [&](auto written) {
    tile_gradient<T>(grad, x_grad, p, [=, &grad, &x_grad](Index n, Index i) {
      const T* g = element_at<const T>(grad, n, i, 0, 0);
      T* to = element_at<T>(x_grad, n, i * p.kernel.h, 0, 0);
      for (Index j = 0; j < columns; ++j, to += to_step, g += grad_step) {
        spread_pixels(g, share, channels, j < whole, to, written);
      }
    });
  };
  with_windows(p, spread_rows, x_grad);
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
