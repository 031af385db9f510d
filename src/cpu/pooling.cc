// Max and average pooling over (N, H, W, C) images and their gradients. Where channels are
// neighbours in memory a window is walked once for a block of channels, which vectorises; in any
// other layout the block is one channel. Forward passes share out output rows; gradients share
// out (image, channel block) pairs, because windows of neighbouring rows may overlap.
#include <limits>

#include "core/thread_pool.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

using Index = std::int64_t;
constexpr Index kBlock = 64;

// The part of output pixel (i, j)'s window that lies inside the image.
struct Window {
  Index top, bottom, left, right;
};

Index clip(Index value, Index limit) { return value < 0 ? 0 : value > limit ? limit : value; }

Window window_at(const Pool2dParams& p, Index height, Index width, Index i, Index j) {
  const Index y = i * p.stride.h - p.padding.h, x = j * p.stride.w - p.padding.w;
  return {clip(y, height), clip(y + p.kernel.h, height), clip(x, width),
          clip(x + p.kernel.w, width)};
}

template <class T>
T* at(const View& v, Index n, Index y, Index x, Index c) {
  return data_of<T>(v) + n * v.strides[0] + y * v.strides[1] + x * v.strides[2] + c * v.strides[3];
}

bool channels_last(const View& v) { return v.strides[3] == 1 || v.shape[3] == 1; }

// Calls f(source, n) for each pixel of the window.
template <class T, class F>
[[gnu::always_inline]] inline void each_pixel(const View& image, const Window& w, Index n, Index c,
                                              F&& f) {
  for (Index y = w.top; y < w.bottom; ++y) {
    T* row = at<T>(image, n, y, w.left, c);
    for (Index x = w.left; x < w.right; ++x, row += image.strides[2]) f(row);
  }
}

// ---- forward -----------------------------------------------------------------------------------

// out = fold of the windows. f(image window, first channel, count, result[kBlock]).
template <class T, class F>
void each_output(const View& x, const View& out, const Pool2dParams& p, F&& f) {
  const Index block = channels_last(x) && channels_last(out) ? kBlock : 1;
  const Index rows = out.shape[1], channels = out.shape[3];
  parallel_for(out.shape[0] * rows, 1, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index n = task / rows, i = task % rows;
      for (Index c = 0; c < channels; c += block) {
        const Index count = channels - c < block ? channels - c : block;
        for (Index j = 0; j < out.shape[2]; ++j) {
          const Window w = window_at(p, x.shape[1], x.shape[2], i, j);
          f(w, n, c, count, at<T>(out, n, i, j, c));
        }
      }
    }
  });
}

template <class T>
void max_forward(const View& x, const View& out, const Pool2dParams& p) {
  each_output<T>(x, out, p, [&](const Window& w, Index n, Index c, Index count, T* to) {
    T best[kBlock];
    for (Index e = 0; e < count; ++e) best[e] = -std::numeric_limits<T>::infinity();
    each_pixel<const T>(x, w, n, c, [&](const T* from) {
      for (Index e = 0; e < count; ++e) {
        const T value = from[e], old = best[e];
        best[e] = ((value > old) | (value != value)) ? value : old;
      }
    });
    for (Index e = 0; e < count; ++e) to[e] = best[e];
  });
}

template <class T>
void average_forward(const View& x, const View& out, const Pool2dParams& p) {
  const T share = T(1) / T(p.kernel.h * p.kernel.w);
  each_output<T>(x, out, p, [&](const Window& w, Index n, Index c, Index count, T* to) {
    T sums[kBlock] = {};
    each_pixel<const T>(x, w, n, c, [&](const T* from) {
      for (Index e = 0; e < count; ++e) sums[e] += from[e];
    });
    for (Index e = 0; e < count; ++e) to[e] = sums[e] * share;
  });
}

// ---- gradients ---------------------------------------------------------------------------------

template <class T>
void clear(const View& image, Index n, Index c, Index count) {
  const Window all{0, image.shape[1], 0, image.shape[2]};
  each_pixel<T>(image, all, n, c, [&](T* to) {
    for (Index e = 0; e < count; ++e) to[e] = T(0);
  });
}

// f(window, n, first channel, count, gradients of one output pixel), in row-major order of outputs.
template <class T, class F>
void each_gradient(const View& grad, const View& x_grad, bool neighbours, const Pool2dParams& p,
                   F&& f) {
  const Index block = neighbours && channels_last(grad) && channels_last(x_grad) ? kBlock : 1;
  const Index channels = x_grad.shape[3], blocks = (channels + block - 1) / block;
  parallel_for(x_grad.shape[0] * blocks, 1, [&](Index begin, Index end) {
    for (Index task = begin; task < end; ++task) {
      const Index n = task / blocks, c = task % blocks * block;
      const Index count = channels - c < block ? channels - c : block;
      clear<T>(x_grad, n, c, count);
      for (Index i = 0; i < grad.shape[1]; ++i) {
        for (Index j = 0; j < grad.shape[2]; ++j) {
          const Window w = window_at(p, x_grad.shape[1], x_grad.shape[2], i, j);
          f(w, n, c, count, at<const T>(grad, n, i, j, c));
        }
      }
    }
  });
}

template <class T>
void max_gradient(const View& grad, const View& x, const View& x_grad, const Pool2dParams& p) {
  using Place = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  const bool neighbours = channels_last(x);
  each_gradient<T>(grad, x_grad, neighbours, p,
                   [&](const Window& w, Index n, Index c, Index count, const T* from) {
                     if (w.top >= w.bottom || w.left >= w.right) return;  // nothing but padding
                     T best[kBlock];
                     Place places[kBlock] = {}, place = 0;  // of the first maximum, row by row
                     const T* first = at<const T>(x, n, w.top, w.left, c);
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
                     const Place width = Place(w.right - w.left);
                     for (Index e = 0; e < count; ++e) {
                       *at<T>(x_grad, n, w.top + places[e] / width, w.left + places[e] % width,
                              c + e) += from[e];
                     }
                   });
}

template <class T>
void average_gradient(const View& grad, const View& x_grad, const Pool2dParams& p) {
  const T share = T(1) / T(p.kernel.h * p.kernel.w);
  each_gradient<T>(grad, x_grad, true, p,
                   [&](const Window& w, Index n, Index c, Index count, const T* from) {
                     each_pixel<T>(x_grad, w, n, c, [&](T* to) {
                       for (Index e = 0; e < count; ++e) to[e] += from[e] * share;
                     });
                   });
}

}  // namespace

void max_pool2d(In x, Out out, const Pool2dParams& params) {
  with_float(x.dtype, [&](auto tag) { max_forward<typename decltype(tag)::type>(x, out, params); });
}

void max_pool2d_grad(In grad, In x, Out x_grad, const Pool2dParams& params) {
  with_float(x.dtype, [&](auto tag) {
    max_gradient<typename decltype(tag)::type>(grad, x, x_grad, params);
  });
}

void avg_pool2d(In x, Out out, const Pool2dParams& params) {
  with_float(x.dtype,
             [&](auto tag) { average_forward<typename decltype(tag)::type>(x, out, params); });
}

void avg_pool2d_grad(In grad, Out x_grad, const Pool2dParams& params) {
  with_float(grad.dtype, [&](auto tag) {
    average_gradient<typename decltype(tag)::type>(grad, x_grad, params);
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
