// Max and average pooling over (N, H, W, C) images and their gradients. The loops take contiguous
// channels; views of other layouts are copied first. For adjacent windows, pool_tiles.h processes a
// row of them, and pool_pixels.h has the loops of a window. For gradients of other windows, a task
// is an (image, channel block) pair, because windows of neighbouring rows may overlap.
#include "core/pool_formulas.h"
#include "kernels.h"
#include "pool_tiles.h"
#include "row_major.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kBlock = 64;

// The part of the window of output pixel (i, j) that lies inside the image.
struct Window {
  Index top, bottom, left, right;
};

Index clip(Index value, Index limit) { return value < 0 ? 0 : value > limit ? limit : value; }

Window window_at(const Pool2dParams& p, Index height, Index width, Index i, Index j) {
  const Index y = i * p.stride.h - p.padding.h, x = j * p.stride.w - p.padding.w;
  return {clip(y, height), clip(y + p.kernel.h, height), clip(x, width),
          clip(x + p.kernel.w, width)};
}

// Calls f(pointer) for each pixel of the window in image n, with a pointer to its channel c.
template <class T, class F>
[[gnu::always_inline]] inline void each_pixel(const View& image, const Window& w, Index n, Index c,
                                              F&& f) {
  for (Index y = w.top; y < w.bottom; ++y) {
    T* row = element_at<T>(image, n, y, w.left, c);
    for (Index x = w.left; x < w.right; ++x, row += image.strides[2]) f(row);
  }
}

// ---- forward -----------------------------------------------------------------------------------

// Returns the pixels of a window of `image`; at<T>(image, n, w.top, w.left, 0) is the first.
Pixels pixels_of(const View& image, const Window& w) {
  return {w.bottom - w.top, w.right - w.left, image.strides[1], image.strides[2]};
}

template <class T, class Fold>
void forward(const View& x_view, const View& out_view, const Pool2dParams& p, const Fold& fold) {
  const RowMajor seen(x_view, takes_vectors<T>(x_view));
  const RowMajor written(out_view, takes_vectors<T>(out_view));
  const View &x = seen.view, &out = written.view;
  seen.load();
  if (side_by_side(p)) {
    fold_tiles<T>(x, out, p, fold);
  } else {
    each_row(out, [&](Index n, Index i) {
      for (Index j = 0; j < out.shape[2]; ++j) {
        const Window w = window_at(p, x.shape[1], x.shape[2], i, j);
        fold_pixels(fold, element_at<const T>(x, n, w.top, w.left, 0), pixels_of(x, w), x.shape[3],
                    false, element_at<T>(out, n, i, j, 0));
      }
    });
  }
  written.store();
}

// ---- gradients ---------------------------------------------------------------------------------

template <class T>
void clear(const View& image, Index n, Index c, Index count) {
  const bool rows = image.strides[2] == count;  // are contiguous
  const Window first{0, image.shape[1], 0, rows ? 1 : image.shape[2]};
  const Index length = rows ? image.shape[2] * count : count;
  each_pixel<T>(image, first, n, c, [=](T* to) {
    for (Index e = 0; e < length; ++e) to[e] = T(0);
  });
}

// Calls f(window, n, first channel, number of channels, gradients) for each output pixel, in
// row-major order. The last argument has the gradients of that pixel.
template <class T, class F>
void each_gradient(const View& grad, const View& x_grad, const Pool2dParams& p, F&& f) {
  const Index channels = x_grad.shape[3], blocks = (channels + kBlock - 1) / kBlock;
  parallel_for(x_grad.shape[0] * blocks, 1, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index n = task / blocks, c = task % blocks * kBlock;
      const Index count = channels - c < kBlock ? channels - c : kBlock;
      clear<T>(x_grad, n, c, count);
      for (Index i = 0; i < grad.shape[1]; ++i) {
        for (Index j = 0; j < grad.shape[2]; ++j) {
          const Window w = window_at(p, x_grad.shape[1], x_grad.shape[2], i, j);
          f(w, n, c, count, element_at<const T>(grad, n, i, j, c));
        }
      }
    }
  });
}

template <class T>
void max_windows(const View& grad, const View& x, const View& x_grad, const Pool2dParams& p) {
  using Place = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  each_gradient<T>(grad, x_grad, p,
                   [&](const Window& w, Index n, Index c, Index count, const T* from) {
                     if (w.top >= w.bottom || w.left >= w.right) return;  // nothing but padding
                     T best[kBlock];
                     Place places[kBlock] = {}, place = 0;  // of the first maximum, row by row
                     const T* first = element_at<const T>(x, n, w.top, w.left, c);
                     for (Index e = 0; e < count; ++e) best[e] = first[e];
                     each_pixel<const T>(x, w, n, c, [&](const T* value) {
                       for (Index e = 0; e < count; ++e) {
                         const T v = value[e], old = best[e];
                         const bool wins = (v > old) | ((v != v) & (old == old));
                         best[e] = wins ? v : old;
                         places[e] = wins ? place : places[e];
                       }
                       ++place;
                     });
                     place = 0;
                     each_pixel<T>(x_grad, w, n, c, [&](T* to) {
                       for (Index e = 0; e < count; ++e) {
                         to[e] += places[e] == place ? from[e] : T(0);
                       }
                       ++place;
                     });
                   });
}

template <class T>
void max_gradient(const View& grad_view, const View& x_view, const View& x_grad,
                  const Pool2dParams& p) {
  const RowMajor grad(grad_view, takes_vectors<T>(grad_view));
  const RowMajor x(x_view, takes_vectors<T>(x_view));
  const RowMajor written(x_grad, takes_vectors<T>(x_grad));
  grad.load();
  x.load();
  if (side_by_side(p) && size_of(grad_view) > 0) {
    split_tiles<T>(grad.view, x.view, written.view, p);
  } else {
    max_windows<T>(grad.view, x.view, written.view, p);
  }
  written.store();
}

template <class T>
void average_gradient(const View& grad_view, const View& x_grad, const Pool2dParams& p) {
  const RowMajor grad(grad_view, takes_vectors<T>(grad_view));
  const RowMajor written(x_grad, takes_vectors<T>(x_grad));
  const T share = T(1) / T(p.kernel.h * p.kernel.w);
  grad.load();
  if (side_by_side(p) && size_of(grad_view) > 0) {
    spread_tiles<T>(grad.view, written.view, share, p);
  } else {
    each_gradient<T>(grad.view, written.view, p,
                     [&](const Window& w, Index n, Index c, Index count, const T* from) {
                       each_pixel<T>(written.view, w, n, c, [&](T* to) {
                         for (Index e = 0; e < count; ++e) to[e] += from[e] * share;
                       });
                     });
  }
  written.store();
}

}  // namespace

void max_pool2d(In x, Out out, const Pool2dParams& params) {
  with_float(x.dtype, [&]<class T>(Tag<T>) { forward<T>(x, out, params, Maximum<T>{}); });
}

void max_pool2d_grad(In grad, In x, Out x_grad, const Pool2dParams& params) {
  with_float(x.dtype, [&]<class T>(Tag<T>) { max_gradient<T>(grad, x, x_grad, params); });
}

void avg_pool2d(In x, Out out, const Pool2dParams& params) {
  with_float(x.dtype, [&]<class T>(Tag<T>) {
    forward<T>(x, out, params, Average<T>{T(1) / T(params.kernel.h * params.kernel.w)});
  });
}

void avg_pool2d_grad(In grad, Out x_grad, const Pool2dParams& params) {
  with_float(grad.dtype, [&]<class T>(Tag<T>) { average_gradient<T>(grad, x_grad, params); });
}

}  // namespace needle::cpu::NEEDLE_ISA
