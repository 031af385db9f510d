// Max and average pooling over (N, H, W, C) images and their gradients. For contiguous channels,
// pool_tiles.h processes adjacent windows, and pool_pixels.h has the loops of a window. In other
// layouts, forward passes distribute output rows and work on blocks of channels. Gradients
// distribute (image, channel block) pairs, because windows of neighbouring rows may overlap; a
// block has several channels where these are contiguous, which vectorises, else one.
#include <cstring>
#include <limits>

#include "core/scratch.h"
#include "core/simd.h"
#include "core/thread_pool.h"
#include "kernels.h"
#include "pool_tiles.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

using Index = std::int64_t;
constexpr Index kBlock = 64;

// Returns the part of output pixel (i, j)'s window that lies inside the image.
struct Window {
  Index top, bottom, left, right;
};

Index clip(Index value, Index limit) { return value < 0 ? 0 : value > limit ? limit : value; }

Window window_at(const Pool2dParams& p, Index height, Index width, Index i, Index j) {
  const Index y = i * p.stride.h - p.padding.h, x = j * p.stride.w - p.padding.w;
  return {clip(y, height), clip(y + p.kernel.h, height), clip(x, width),
          clip(x + p.kernel.w, width)};
}

bool channels_last(const View& v) { return v.strides[3] == 1 || v.shape[3] == 1; }

// Calls f(source, n) for each pixel of the window.
template <class T, class F>
[[gnu::always_inline]] inline void each_pixel(const View& image, const Window& w, Index n, Index c,
                                              F&& f) {
  for (Index y = w.top; y < w.bottom; ++y) {
    T* row = element_at<T>(image, n, y, w.left, c);
    for (Index x = w.left; x < w.right; ++x, row += image.strides[2]) f(row);
  }
}

// ---- forward -----------------------------------------------------------------------------------

// The operation on a window: a fold of two values (or vectors), and a function of the result.
template <class T>
struct Maximum {
  template <class V>
  [[gnu::always_inline]] static V fold(V old, V value) {
    return ((value > old) | (value != value)) ? value : old;
  }
  template <class V>
  [[gnu::always_inline]] V finish(V folded) const {
    return folded;
  }
  static constexpr T kNothing = -std::numeric_limits<T>::infinity();
};

template <class T>
struct Average {
  T share;
  template <class V>
  [[gnu::always_inline]] static V fold(V old, V value) {
    return old + value;
  }
  template <class V>
  [[gnu::always_inline]] V finish(V folded) const {
    return folded * share;
  }
  static constexpr T kNothing = T(0);
};

// Calls f(position in the block, element) for channels [c, c + count) of an image row.
template <class T, class F>
[[gnu::always_inline]] inline void each_element(const View& image, Index n, Index y, Index c,
                                                Index count, F&& f) {
  const Index width = image.shape[2], column = image.strides[2], channel = image.strides[3];
  T* row = element_at<T>(image, n, y, 0, c);
  if (column == count && (channel == 1 || count == 1)) {
    for (Index e = 0; e < width * count; ++e) f(e, row[e]);
    return;
  }
  for (Index x = 0; x < width; ++x, row += column) {
    if (channel == 1) {
      for (Index e = 0; e < count; ++e) f(x * count + e, row[e]);
    } else {
      for (Index e = 0; e < count; ++e) f(x * count + e, row[e * channel]);
    }
  }
}

// Windows are folded in two steps: first image rows, each as a whole; then the pixels of a window
// in whole vectors, which may reach into the next pixel, whose own results are written later.
template <class T, class Fold>
void fold_windows(const View& x, const View& out, const Pool2dParams& p, const Fold& fold, Index n,
                  Index i, Index c, Index count, T* folded, T* results) {
  using V = simd::Vector<T>;
  const Index width = x.shape[2];
  const Window band = window_at(p, x.shape[1], width, i, 0);
  if (band.top >= band.bottom) {
    for (Index e = 0; e < width * count; ++e) folded[e] = Fold::kNothing;
  }
  for (Index y = band.top; y < band.bottom; ++y) {
    if (y == band.top) {
      each_element<const T>(x, n, y, c, count, [=](Index e, T value) { folded[e] = value; });
    } else {
      each_element<const T>(x, n, y, c, count,
                            [=](Index e, T value) { folded[e] = Fold::fold(folded[e], value); });
    }
  }
  for (Index j = 0; j < out.shape[2]; ++j) {
    const Window w = window_at(p, x.shape[1], width, i, j);
    for (Index e = 0; e < count; e += simd::kLanes<T>) {
      V best = V{} + Fold::kNothing;
      for (Index column = w.left; column < w.right; ++column) {
        best = Fold::fold(best, simd::load(folded + column * count + e));
      }
      best = fold.finish(best);
      std::memcpy(results + j * count + e, &best, sizeof best);
    }
  }
  each_element<T>(out, n, i, c, count, [=](Index e, T& to) { to = results[e]; });
}

template <class T>
bool many_channels(const View& a, const View& b) {
  return a.shape[3] >= simd::kLanes<T> && a.strides[3] == 1 && b.strides[3] == 1;
}

// Returns the pixels of a window of `image`; at<T>(image, n, w.top, w.left, 0) is the first.
Pixels pixels_of(const View& image, const Window& w) {
  return {w.bottom - w.top, w.right - w.left, image.strides[1], image.strides[2]};
}

template <class T, class Fold>
void forward(const View& x, const View& out, const Pool2dParams& p, const Fold& fold) {
  if (side_by_side(p) && takes_vectors<T>(x) && takes_vectors<T>(out)) {
    return fold_tiles<T>(x, out, p, fold);
  }
  if (many_channels<T>(x, out)) {
    return each_row(out, [&](Index n, Index i) {
      for (Index j = 0; j < out.shape[2]; ++j) {
        const Window w = window_at(p, x.shape[1], x.shape[2], i, j);
        fold_pixels(fold, element_at<const T>(x, n, w.top, w.left, 0), pixels_of(x, w), x.shape[3],
                    false, element_at<T>(out, n, i, j, 0));
      }
    });
  }
  const Index rows = out.shape[1], channels = out.shape[3];
  const Index most = channels < kBlock ? channels : kBlock;
  const Index folded = x.shape[2] * most + simd::kLanes<T>;
  const Index room = folded + out.shape[2] * most + simd::kLanes<T>;
  parallel_for(out.shape[0] * rows, 4, [&](Index begin, Index end) {
    const Scratch scratch(static_cast<std::size_t>(room) * sizeof(T));
    for (Index e = 0; e < room; ++e) scratch.as<T>()[e] = T(0);
    for (Index task = begin; task < end; ++task) {
      for (Index c = 0; c < channels; c += kBlock) {
        const Index count = channels - c < kBlock ? channels - c : kBlock;
        fold_windows(x, out, p, fold, task / rows, task % rows, c, count, scratch.as<T>(),
                     scratch.as<T>() + folded);
      }
    }
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

// Calls f(window, n, first channel, count, gradients of one output pixel), in row-major order of
// outputs.
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
          f(w, n, c, count, element_at<const T>(grad, n, i, j, c));
        }
      }
    }
  });
}

// For adjacent windows: image rows are copied, so that whole vectors may be read, and each pixel of
// a window gets the gradient or zero. Where a vector reaches into the next pixel, that pixel is
// written afterwards.
template <class T>
void split_row(const View& grad, const View& x, const View& x_grad, const Pool2dParams& p, Index n,
               Index i, Index c, Index count, T* scratch) {
  using V = simd::Vector<T>;
  using Places = decltype(V{} < V{});
  const Index width = x.shape[2], row = width * count + simd::kLanes<T>;
  T* const seen = scratch;
  T* const gains = seen + p.kernel.h * row;
  T* const grads = gains + p.kernel.h * row;
  for (Index y = 0; y < p.kernel.h; ++y) {
    T* const to = seen + y * row;
    each_element<const T>(x, n, i * p.kernel.h + y, c, count, [=](Index e, T v) { to[e] = v; });
  }
  each_element<const T>(grad, n, i, c, count, [=](Index e, T v) { grads[e] = v; });
  const Index last = (count - 1) / simd::kLanes<T> * simd::kLanes<T>;
  for (Index j = 0; j < grad.shape[2]; ++j) {
    for (Index e = last; e >= 0; e -= simd::kLanes<T>) {  // written first: it reaches too far
      const Index first = j * p.kernel.w * count + e;
      V best = simd::load(seen + first);
      Places places = {}, place = {};  // of the first maximum, row by row
      for (Index y = 0; y < p.kernel.h; ++y) {
        for (Index column = 0; column < p.kernel.w; ++column, place += 1) {
          const V value = simd::load(seen + y * row + first + column * count);
          const auto wins = (value > best) | ((value != value) & (best == best));
          best = wins ? value : best;
          places = wins ? place : places;
        }
      }
      const V gain = simd::load(grads + j * count + e);
      place = Places{};
      for (Index y = 0; y < p.kernel.h; ++y) {
        for (Index column = 0; column < p.kernel.w; ++column, place += 1) {
          const V part = places == place ? gain : V{};
          std::memcpy(gains + y * row + first + column * count, &part, sizeof part);
        }
      }
    }
  }
  for (Index y = 0; y < p.kernel.h; ++y) {
    T* const from = gains + y * row;
    for (Index e = grad.shape[2] * p.kernel.w * count; e < width * count; ++e) from[e] = T(0);
    each_element<T>(x_grad, n, i * p.kernel.h + y, c, count, [=](Index e, T& to) { to = from[e]; });
  }
}

template <class T>
void split_gradient(const View& grad, const View& x, const View& x_grad, const Pool2dParams& p) {
  const Index rows = grad.shape[1], channels = x.shape[3];
  const Index most = channels < kBlock ? channels : kBlock;
  const Index row = x.shape[2] * most + simd::kLanes<T>, room = (2 * p.kernel.h + 1) * row;
  parallel_for(grad.shape[0], 1, [&](Index begin, Index end) {
    const Scratch scratch(static_cast<std::size_t>(room) * sizeof(T));
    for (Index e = 0; e < room; ++e) scratch.as<T>()[e] = T(0);
    for (Index n = begin; n < end; ++n) {
      for (Index c = 0; c < channels; c += kBlock) {
        const Index count = channels - c < kBlock ? channels - c : kBlock;
        for (Index i = 0; i < rows; ++i) {
          split_row(grad, x, x_grad, p, n, i, c, count, scratch.as<T>());
        }
        for (Index y = rows * p.kernel.h; y < x.shape[1]; ++y) {
          each_element<T>(x_grad, n, y, c, count, [](Index, T& to) { to = T(0); });
        }
      }
    }
  });
}

template <class T>
void max_gradient(const View& grad, const View& x, const View& x_grad, const Pool2dParams& p) {
  if (side_by_side(p) && takes_vectors<T>(x) && takes_vectors<T>(x_grad) && size_of(grad) > 0) {
    return split_tiles<T>(grad, x, x_grad, p);
  }
  if (side_by_side(p)) return split_gradient<T>(grad, x, x_grad, p);
  using Place = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  const bool neighbours = channels_last(x);
  each_gradient<T>(grad, x_grad, neighbours, p,
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
void average_gradient(const View& grad, const View& x_grad, const Pool2dParams& p) {
  const T share = T(1) / T(p.kernel.h * p.kernel.w);
  if (side_by_side(p) && takes_vectors<T>(x_grad) && size_of(grad) > 0) {
    return spread_tiles<T>(grad, x_grad, share, p);
  }
  each_gradient<T>(grad, x_grad, true, p,
                   [&](const Window& w, Index n, Index c, Index count, const T* from) {
                     each_pixel<T>(x_grad, w, n, c, [&](T* to) {
                       for (Index e = 0; e < count; ++e) to[e] += from[e] * share;
                     });
                   });
}

}  // namespace

void max_pool2d(In x, Out out, const Pool2dParams& params) {
  with_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    forward<T>(x, out, params, Maximum<T>{});
  });
}

void max_pool2d_grad(In grad, In x, Out x_grad, const Pool2dParams& params) {
  with_float(x.dtype, [&](auto tag) {
    max_gradient<typename decltype(tag)::type>(grad, x, x_grad, params);
  });
}

void avg_pool2d(In x, Out out, const Pool2dParams& params) {
  with_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    forward<T>(x, out, params, Average<T>{T(1) / T(params.kernel.h * params.kernel.w)});
  });
}

void avg_pool2d_grad(In grad, Out x_grad, const Pool2dParams& params) {
  with_float(grad.dtype, [&](auto tag) {
    average_gradient<typename decltype(tag)::type>(grad, x_grad, params);
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
