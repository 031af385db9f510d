// conv2d and its input gradient: the choice of the fastest algorithm for a shape. All are sums over
// taps of products (input channels) x (output channels), in different orders: Winograd's for 3 x 3
// of step 1 (winograd.h); vectors of output channels, with the windows as runs of neighbours
// (conv_windows.h) or tap by tap (conv_rows.h); vectors of pixels (conv_planes.h); and depthwise.
//
// The input gradient is the same sum on the output gradient: the input pixels whose coordinates
// agree modulo the stride form a grid, which only some taps reach. Alternatively each pixel of the
// output gradient is spread over the pixels of its window (conv_spread.h).
#include "conv_applied.h"
#include "conv_planes.h"
#include "conv_rows.h"
#include "conv_spread.h"
#include "conv_windows.h"
#include "depthwise.h"
#include "kernels.h"
#include "winograd.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

enum class Way { kWinograd, kWindows, kPlanes, kRows };

struct Choice {
  Way way;
  double cost;  // in multiply-adds at full speed; unknown and unused for Winograd's
};

// windows: the windows of p's pixels if p's taps are those of a kernel, else null.
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

template <class T>
void forward(const View& x, const View& whole, const T* bias, T least, const View& out,
             const Geometry& whole_geometry) {
  const Kernel kernel = applied_kernel<T>(x, whole, out, whole_geometry);
  const View& weight = kernel.weight;
  const Geometry& geometry = kernel.geometry;
  const Image<const T> source = image_of<const T>(x);
  const Image<T> target = image_of<T>(out);
  const Grid grid{target.images, target.height, target.width, geometry.stride};
  const Scratch taps(bytes_for<Tap>(weight.shape[0] * weight.shape[1]));
  const Index count = forward_taps(weight, geometry, taps.as<Tap>());
  if (is_depthwise(source, readable(target), weight, geometry.groups)) {
    return depthwise(source, target, grid, taps.as<Tap>(), count, weight, bias, least);
  }
  const Index inputs = weight.shape[2], outputs = weight.shape[3] / geometry.groups;
  for (Index g = 0; g < geometry.groups; ++g) {
    const TapProduct<T> p{source.group(g * inputs, inputs),
                          target.group(g * outputs, outputs),
                          grid,
                          taps.as<Tap>(),
                          count,
                          data_of<const T>(weight) + g * outputs * weight.strides[3],
                          weight.strides[2],
                          weight.strides[3],
                          bias != nullptr ? bias + g * outputs : nullptr,
                          least};
    const Windows<T> windows = windows_of(p.source, grid, weight, geometry);
    run_product(p, &windows);
  }
}

template <class T>
void forward_then(const View& x, const View& weight, const View& out, const Geometry& geometry,
                  const Epilogue& epilogue) {
  const T least = epilogue.relu ? T(0) : no_floor<T>();
  if (epilogue.bias == nullptr) return forward<T>(x, weight, nullptr, least, out, geometry);
  const View& bias = *epilogue.bias;
  const Scratch values(bytes_for<T>(bias.shape[0]));
  for (Index o = 0; o < bias.shape[0]; ++o) {
    values.as<T>()[o] = data_of<const T>(bias)[o * bias.strides[0]];
  }
  forward<T>(x, weight, values.as<const T>(), least, out, geometry);
}

// ---- input gradient ----------------------------------------------------------------------------

// One axis of a tap: kernel position k connects the input pixels at `phase` modulo the stride with
// the gradient pixel `offset` beyond their own index. Returns false if it connects none.
bool reaches(Index phase, Index k, Index stride, Index padding, Index dilation, Index* offset) {
  const Index distance = phase + padding - k * dilation;
  *offset = distance / stride;
  return distance % stride == 0;
}

// The taps that reach a phase, in the order of their offsets; returns their number.
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

// The image of every stride-th pixel from `phase` on.
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

// Calls f(phase of x_grad, taps, their number) for all pixels of x_grad, grid by grid.
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

// Calls f(product, windows or null) for the phases of one group, whose weights begin at `filters`.
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
  with_float(out.dtype, [&](auto tag) {
    forward_then<typename decltype(tag)::type>(x, weight, out, geometry, epilogue);
  });
}

void conv2d_input_grad(In grad, In weight, Out x_grad, const Geometry& geometry) {
  with_float(x_grad.dtype, [&](auto tag) {
    input_gradient<typename decltype(tag)::type>(grad, weight, x_grad, geometry);
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
