// Computes conv2d and its input gradient by the fastest algorithm for a shape. All of them sum
// products of input channels and weights over the taps, in different orders. winograd.h handles 3 x
// 3 kernels of stride 1. conv_windows.h and conv_rows.h use vectors of output channels: the first
// reads windows as runs of neighbours, the second goes tap by tap. conv_planes.h uses vectors of
// pixels. depthwise.h handles one filter per channel.
//
// The input gradient is the same sum over the output gradient. Input pixels whose coordinates agree
// modulo the stride form a grid, which only some taps reach. Alternatively, conv_spread.h adds each
// pixel of the output gradient to the pixels of its window.
//
// Each algorithm has its own order of the weights. For inference they can be prepared once
// (prepared_conv2d.h).
#include <algorithm>

#include "conv_applied.h"
#include "conv_planes.h"
#include "conv_rows.h"
#include "conv_spread.h"
#include "conv_windows.h"
#include "core/view_rules.h"
#include "depthwise.h"
#include "kernels.h"
#include "winograd.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

enum class Way { kWinograd, kWindows, kPlanes, kRows };

struct Choice {
  Way way;
  double cost;  // in multiply-adds at full speed; unused for Winograd
};

// Chooses an algorithm. `windows` has the windows of p's pixels if p's taps are those of a dense
// kernel; otherwise it is null.
template <class T>
Choice choose(const TapProduct<T>& p, const Windows<T>* windows) {
  if constexpr (sizeof(T) == 4) {
    if (uses_winograd(p)) return {Way::kWinograd, 0};
  }
  const double by_windows = windows != nullptr ? windows_cost(*windows, p.out.channels) : kNever;
  const double by_rows = rows_cost(p), by_planes = planes_cost(p);
  if (by_windows < (by_rows < by_planes ? by_rows : by_planes)) return {Way::kWindows, by_windows};
  return by_planes < by_rows ? Choice{Way::kPlanes, by_planes} : Choice{Way::kRows, by_rows};
}

template <class T>
void run_product(const TapProduct<T>& p, const Windows<T>* windows) {
  if (p.grid.size() == 0 || p.out.channels == 0) return;
  switch (choose(p, windows).way) {
    case Way::kWinograd:
      if constexpr (sizeof(T) == 4) run_winograd(p);
      return;
    case Way::kWindows: return run_windows(*windows, p);
    case Way::kPlanes: return run_planes(p);
    case Way::kRows: return run_rows(p);
  }
}

// The operands of a forward pass. Kernel positions that only meet padding are left out.
template <class T>
struct Convolution {
  Kernel kernel;
  Image<const T> source;
  Image<T> target;
  Grid grid;
  Scratch taps;
  Index tap_count;

  Convolution(const View& x, const View& weight, const View& out, const Geometry& geometry)
      : kernel(applied_kernel<T>(x, weight, out, geometry)),
        source(image_of<const T>(x)),
        target(image_of<T>(out)),
        grid{target.images, target.height, target.width, geometry.stride},
        taps(bytes_for<Tap>(kernel.weight.shape[0] * kernel.weight.shape[1])),
        tap_count(forward_taps(kernel.weight, kernel.geometry, taps.as<Tap>())) {}

  bool by_channel() const {
    return is_depthwise(source, readable(target), kernel.weight, kernel.geometry.groups);
  }
  // Returns the product of a group, without bias and ReLU.
  TapProduct<T> product(Index group) const {
    const View& weight = kernel.weight;
    const Index inputs = weight.shape[2], outputs = weight.shape[3] / kernel.geometry.groups;
    return {source.group(group * inputs, inputs),
            target.group(group * outputs, outputs),
            grid,
            taps.as<const Tap>(),
            tap_count,
            data_of<const T>(weight) + group * outputs * weight.strides[3],
            weight.strides[2],
            weight.strides[3]};
  }
  Windows<T> windows(const TapProduct<T>& p) const {
    return windows_of(p.source, grid, kernel.weight, kernel.geometry);
  }
};

// ---- prepared weights --------------------------------------------------------------------------

constexpr Index kMostPixels = 4096;  // with more images, preparing the weights takes a few percent

// Returns the size of the weights in the algorithm's order; 0 if it reads them in place, or if
// reordering takes little time.
Index ordered_size(const TapProduct<float>& p, const Windows<float>& windows) {
  if (p.grid.size() == 0 || p.out.channels == 0 || p.grid.size() > kMostPixels) return 0;
  switch (choose(p, &windows).way) {
    case Way::kWinograd: return transformed_size(p);
    case Way::kWindows: return panels_size(p);
    case Way::kRows: return packed_size(p);
    case Way::kPlanes: break;
  }
  return 0;
}

void order_weights(const TapProduct<float>& p, const Windows<float>& windows, float* to) {
  switch (choose(p, &windows).way) {
    case Way::kWinograd: return transform_weights(winograd_of<float>(p, nullptr), to);
    case Way::kWindows: return pack_panels(p, to);
    case Way::kRows: return pack_weights(p, to);
    case Way::kPlanes: return;
  }
}

// This mark follows reordered weights and holds the vector size of the instruction set that wrote
// them.
constexpr float kMark = float(Blocking<float>::NR);

// Returns the ordered weights if this product reads them in that order, else null.
const float* ordered_weights(const TapProduct<float>& p, const Windows<float>& windows,
                             const View& prepared) {
  const float* weights = data_of<const float>(prepared);
  const Index size = ordered_size(p, windows);
  return size > 0 && prepared.shape[0] == size + 1 && weights[size] == kMark ? weights : nullptr;
}

// ---- forward -----------------------------------------------------------------------------------

template <class T>
void forward(const View& x, const View& weight, const View* prepared, const T* bias, T least,
             const View& out, const Geometry& geometry) {
  const Convolution<T> convolution(x, weight, out, geometry);
  if (convolution.by_channel()) {
    return depthwise(convolution.source, convolution.target, convolution.grid,
                     convolution.taps.template as<Tap>(), convolution.tap_count,
                     convolution.kernel.weight, bias, least);
  }
  for (Index g = 0; g < geometry.groups; ++g) {
    TapProduct<T> p = convolution.product(g);
    p.bias = bias != nullptr ? bias + g * p.out.channels : nullptr;
    p.least = least;
    const Windows<T> windows = convolution.windows(p);
    if constexpr (sizeof(T) == 4) {
      if (prepared != nullptr) p.prepared = ordered_weights(p, windows, *prepared);
    }
    run_product(p, &windows);
  }
}

template <class T>
void forward_then(const View& x, const View& weight, const View* prepared, const View& out,
                  const Geometry& geometry, const Epilogue& epilogue) {
  const T least = epilogue.relu ? T(0) : no_floor<T>();
  const Index outputs = epilogue.bias != nullptr ? epilogue.bias->shape[0] : 0;
  const Scratch values(bytes_for<T>(outputs));
  for (Index o = 0; o < outputs; ++o) {
    values.as<T>()[o] = data_of<const T>(*epilogue.bias)[o * epilogue.bias->strides[0]];
  }
  const T* bias = epilogue.bias != nullptr ? values.as<const T>() : nullptr;
  forward<T>(x, weight, prepared, bias, least, out, geometry);
}

// ---- input gradient ----------------------------------------------------------------------------

// Along one axis, returns true if kernel position k connects input pixels phase + n * stride with
// pixels of the output gradient. These then have the index n + *offset.
bool reaches(Index phase, Index k, Index stride, Index padding, Index dilation, Index* offset) {
  const Index distance = phase + padding - k * dilation;
  *offset = distance / stride;
  return distance % stride == 0;
}

// Writes the taps that reach a phase, in the order of their offsets, and returns their number.
Index phase_taps(const View& weight, const Geometry& geometry, Pair phase, Tap* taps) {
  Index count = 0;
  for (Index i = weight.shape[0] - 1; i >= 0; --i) {
    for (Index j = weight.shape[1] - 1; j >= 0; --j) {
      Tap tap{0, 0, i * weight.strides[0] + j * weight.strides[1]};
      if (reaches(phase.h, i, geometry.stride.h, geometry.padding.h, geometry.dilation.h,
                  &tap.dy) &&
          reaches(phase.w, j, geometry.stride.w, geometry.padding.w, geometry.dilation.w,
                  &tap.dx)) {
        taps[count++] = tap;
      }
    }
  }
  return count;
}

// Returns the image of every stride-th pixel, starting at `phase`.
template <class T>
Image<T> phase_of(const Image<T>& image, Pair phase, Pair stride) {
  return {image.at(0, phase.h, phase.w),
          image.images,
          ceil_div(larger(image.height - phase.h, 0), stride.h),
          ceil_div(larger(image.width - phase.w, 0), stride.w),
          image.channels,
          image.image_stride,
          image.row_stride * stride.h,
          image.column_stride * stride.w,
          image.channel_stride};
}

// Calls f(phase, taps, number of taps) for each phase of x_grad. The phases cover all its pixels.
template <class T, class F>
void each_phase(const Image<T>& x_grad, const View& weight, const Geometry& geometry, F&& f) {
  const Scratch taps(bytes_for<Tap>(weight.shape[0] * weight.shape[1]));
  for (Index h = 0; h < smaller(geometry.stride.h, x_grad.height); ++h) {
    for (Index w = 0; w < smaller(geometry.stride.w, x_grad.width); ++w) {
      const Index count = phase_taps(weight, geometry, {h, w}, taps.as<Tap>());
      f(phase_of(x_grad, {h, w}, geometry.stride), taps.as<const Tap>(), count);
    }
  }
}

template <class T>
Grid grid_of(const Image<T>& image, Pair step) {
  return {image.images, image.height, image.width, step};
}

// Calls f(product, windows) for each phase of one group, whose weights begin at `filters`.
// `windows` may be null.
template <class T, class F>
void each_product(const Image<const T>& grad, const Image<T>& x_grad, const View& weight,
                  const T* filters, const Geometry& geometry, F&& f) {
  const auto reach = [](Index kernel, Index padding, Index dilation) {
    return dilation * (kernel - 1) - padding;
  };
  const Pair kernel{weight.shape[0], weight.shape[1]};
  const Pair padding{reach(kernel.h, geometry.padding.h, geometry.dilation.h),
                     reach(kernel.w, geometry.padding.w, geometry.dilation.w)};
  const bool windows =
      geometry.stride.h == 1 && geometry.stride.w == 1 && smaller(padding.h, padding.w) >= 0;
  each_phase(x_grad, weight, geometry, [&](const Image<T>& phase, const Tap* taps, Index count) {
    const Grid grid = grid_of(phase, {1, 1});
    const TapProduct<T> p{
        grad, phase, grid, taps, count, filters, weight.strides[3], weight.strides[2]};
    const Windows<T> w{grad, grid, kernel, padding, geometry.dilation};
    f(p, windows ? &w : nullptr);
  });
}

template <class T>
void group_input_gradient(const Image<const T>& grad, const Image<T>& x_grad, const View& weight,
                          const T* filters, const Geometry& geometry) {
  const Scratch taps(bytes_for<Tap>(weight.shape[0] * weight.shape[1]));
  const Index count = forward_taps(weight, geometry, taps.as<Tap>());
  const TapProduct<T> p{grad,
                        x_grad,
                        grid_of(grad, geometry.stride),
                        taps.as<Tap>(),
                        count,
                        filters,
                        weight.strides[3],
                        weight.strides[2]};
  const Windows<T> seen = windows_of(readable(x_grad), p.grid, weight, geometry);
  double gathered = 0;
  each_product(grad, x_grad, weight, filters, geometry,
               [&](const TapProduct<T>& part, const Windows<T>* windows) {
                 gathered += choose(part, windows).cost;
               });
  if (spread_cost(seen, p) < gathered) return run_spread(seen, p);
  each_product(
      grad, x_grad, weight, filters, geometry,
      [](const TapProduct<T>& part, const Windows<T>* windows) { run_product(part, windows); });
}

template <class T>
void input_gradient(const View& grad_view, const View& whole, const View& x_grad_view,
                    const Geometry& whole_geometry) {
  if (size_of(x_grad_view) == 0) return;
  const Kernel kernel = applied_kernel<T>(x_grad_view, whole, grad_view, whole_geometry);
  const View& weight = kernel.weight;
  const Geometry& geometry = kernel.geometry;
  const Image<const T> grad = image_of<const T>(grad_view);
  const Image<T> x_grad = image_of<T>(x_grad_view);
  if (is_depthwise(grad, readable(x_grad), weight, geometry.groups)) {
    return each_phase(x_grad, weight, geometry,
                      [&](const Image<T>& phase, const Tap* taps, Index count) {
                        depthwise<T>(grad, phase, grid_of(phase, {1, 1}), taps, count, weight,
                                     nullptr, no_floor<T>());
                      });
  }
  const Index inputs = weight.shape[2], outputs = weight.shape[3] / geometry.groups;
  for (Index g = 0; g < geometry.groups; ++g) {
    group_input_gradient(grad.group(g * outputs, outputs), x_grad.group(g * inputs, inputs), weight,
                         data_of<const T>(weight) + g * outputs * weight.strides[3], geometry);
  }
}

}  // namespace

void conv2d(In x, In weight, Out out, const Geometry& geometry, const Epilogue& epilogue) {
  with_float(out.dtype, [&]<class T>(Tag<T>) {
    forward_then<T>(x, weight, nullptr, out, geometry, epilogue);
  });
}

void conv2d_input_grad(In grad, In weight, Out x_grad, const Geometry& geometry) {
  with_float(x_grad.dtype,
             [&]<class T>(Tag<T>) { input_gradient<T>(grad, weight, x_grad, geometry); });
}

namespace {

// Returns a view that has a shape but no memory.
View shaped(const std::int64_t (&shape)[4]) {
  View v{nullptr, DType::kFloat32, 4};
  std::copy_n(shape, 4, v.shape);
  return row_major(v, nullptr);
}

// Calls f(product, windows) with the description of a convolution of one group over images of a
// given shape. Accesses no memory.
template <class F>
void with_product(const ImageShape& image, const View& weight, const Geometry& g, F&& f) {
  const auto windows = [](Index pixels, Index kernel, Index stride, Index padding, Index dilation) {
    return (pixels + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  };
  const View x = shaped({image.n, image.h, image.w, image.c});
  const View out = shaped(
      {image.n, windows(image.h, weight.shape[0], g.stride.h, g.padding.h, g.dilation.h),
       windows(image.w, weight.shape[1], g.stride.w, g.padding.w, g.dilation.w), weight.shape[3]});
  const Convolution<float> convolution(x, weight, out, g);
  if (g.groups != 1 || convolution.by_channel()) return;
  const TapProduct<float> p = convolution.product(0);
  f(p, convolution.windows(p));
}

Index prepared_size(const ImageShape& image, const ImageShape& weight, const Geometry& geometry) {
  Index size = 0;
  const View kernel = shaped({weight.n, weight.h, weight.w, weight.c});
  with_product(image, kernel, geometry,
               [&](const auto& p, const auto& windows) { size = ordered_size(p, windows); });
  return size > 0 ? size + 1 : 0;
}

void prepare(In weight, Out out, const ImageShape& image, const Geometry& geometry) {
  with_product(image, weight, geometry, [&](const auto& p, const auto& windows) {
    const Index size = ordered_size(p, windows);
    float* to = data_of<float>(out);
    if (size + 1 != out.shape[0]) return;  // the mark is missing
    order_weights(p, windows, to);
    to[size] = kMark;
  });
}

void run_prepared(In x, In weight, In prepared, Out out, const Geometry& geometry,
                  const Epilogue& epilogue) {
  forward_then<float>(x, weight, &prepared, out, geometry, epilogue);
}

}  // namespace

constinit const PreparedConv2d prepared_conv2d = {&prepared_size, &prepare, &run_prepared};

}  // namespace needle::cpu::NEEDLE_ISA
