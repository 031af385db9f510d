// Max and average pooling over (N, H, W, C) images and their gradients. A thread computes one
// element; a warp has adjacent channels, so that its loads coalesce, and overlapping windows hit
// the cache. Gradients are gathered: the thread of an input element visits the windows that contain
// it, in order, so there are no atomics, results are reproducible bit for bit, and every element is
// written.
#include "allocator.h"
#include "core/pool_formulas.h"
#include "images.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

// A range [first, last) along one axis, of the pixels of a window or of the windows of a pixel.
struct Range {
  std::int32_t first, last;
};

struct PoolAxis {
  std::int64_t kernel, stride, padding;

  // Returns the pixels of window i that are within bounds.
  __device__ Range window(std::int64_t i, std::int32_t size) const {
    const std::int64_t first = i * stride - padding, last = first + kernel;
    return {std::int32_t(std::clamp<std::int64_t>(first, 0, size)),
            std::int32_t(std::clamp<std::int64_t>(last, 0, size))};
  }
  // Returns the windows, out of `count`, that contain pixel y.
  __device__ Range windows(std::int32_t y, std::int32_t count) const {
    const std::uint32_t step = std::uint32_t(stride);
    const std::int64_t low = y + padding - kernel;  // the last pixel before them
    const std::uint32_t first = low < 0 ? 0 : std::uint32_t(low) / step + 1;
    const std::uint32_t last = std::uint32_t(y + padding) / step + 1;
    return {std::int32_t(first), std::int32_t(std::min<std::uint32_t>(last, count))};
  }
};

template <class T>
struct Pooling {
  ElementGrid grid;  // of the elements that are written
  PoolAxis down, across;
  ImageView<const T> grad, x;  // those that the kernel reads
  ImageView<T> out;
  Computed<T> share;  // 1 / elements of a window

  // Calls f(value) for each pixel of x in the window of the result's pixel `at`, row by row.
  template <class F>
  __device__ void each_in_window(const PixelIndex& at, std::uint32_t channel, F&& f) const {
    const Range rows = down.window(at.row, x.height), columns = across.window(at.column, x.width);
    const T* image = x.at(at.image, 0, 0) + channel * x.channel;
    for (std::int32_t i = rows.first; i < rows.last; ++i) {
      for (std::int32_t j = columns.first; j < columns.last; ++j) {
        f(Computed<T>(image[i * x.row + j * x.column]));
      }
    }
  }

  // Writes the sum of part(i, j, gradient) over the windows (i, j) that contain pixel `at`.
  template <class F>
  __device__ void write_sum(const PixelIndex& at, std::uint32_t channel, F&& part) const {
    const Range rows = down.windows(at.row, grad.height);
    const Range columns = across.windows(at.column, grad.width);
    Computed<T> sum = 0;
    for (std::int32_t i = rows.first; i < rows.last; ++i) {
#pragma unroll 1
      for (std::int32_t j = columns.first; j < columns.last; ++j) {
        sum += part(i, j, Computed<T>(grad.at(at.image, i, j)[channel * grad.channel]));
      }
    }
    *result(at, channel) = T(sum);
  }

  __device__ T* result(const PixelIndex& at, std::uint32_t channel) const {
    return out.at(at.image, at.row, at.column) + channel * out.channel;
  }
};

template <class T, class Fold>
__global__ void __launch_bounds__(kImageThreads) pool_kernel(const __grid_constant__ Pooling<T> p) {
  at_element(p.grid, [&](const PixelIndex& pixel, std::uint32_t channel) {
    const Fold fold{p.share};
    Computed<T> folded = Fold::kNothing;
    p.each_in_window(pixel, channel,
                     [&](Computed<T> value) { folded = Fold::fold(folded, value); });
    *p.result(pixel, channel) = T(fold.finish(folded));
  });
}

template <class T>
__global__ void __launch_bounds__(kImageThreads)
    average_grad_kernel(const __grid_constant__ Pooling<T> p) {
  at_element(p.grid, [&](const PixelIndex& pixel, std::uint32_t channel) {
    p.write_sum(pixel, channel, [&](int, int, Computed<T> grad) { return grad * p.share; });
  });
}

// Writes the position of each window's first maximum, or of its first NaN: the index among the
// window's pixels that are within bounds, in row-major order.
template <class T, class Place>
__global__ void __launch_bounds__(kImageThreads)
    max_place_kernel(const __grid_constant__ Pooling<T> p,
                     const __grid_constant__ ImageView<Place> places) {
  at_element(p.grid, [&](const PixelIndex& pixel, std::uint32_t channel) {
    using V = Computed<T>;
    V best = Maximum<V>::kNothing;
    std::uint32_t place = 0, number = 0;
    p.each_in_window(pixel, channel, [&](V value) {
      const bool wins = (value > best) | ((value != value) & (best == best));
      best = wins ? value : best;
      place = wins ? number : place;
      ++number;
    });
    places.at(pixel.image, pixel.row, pixel.column)[channel] = Place(place);
  });
}

template <class T, class Place>
__global__ void __launch_bounds__(kImageThreads)
    max_grad_kernel(const __grid_constant__ Pooling<T> p,
                    const __grid_constant__ ImageView<Place> places) {
  at_element(p.grid, [&](const PixelIndex& pixel, std::uint32_t channel) {
    p.write_sum(pixel, channel, [&](int i, int j, Computed<T> grad) {
      const std::int32_t above = pixel.row - p.down.window(i, p.out.height).first;
      const Range columns = p.across.window(j, p.out.width);
      const std::int32_t number =
          above * (columns.last - columns.first) + pixel.column - columns.first;
      return places.at(pixel.image, i, j)[channel] == std::uint32_t(number) ? grad : 0;
    });
  });
}

// Launches one thread for each element of `out`. `more` has other images of the same batch.
template <class T, class... More>
void launch_pooling(const char* op, void (*kernel)(Pooling<T>, ImageView<More>...), In grad, In x,
                    Out out, const Pool2dParams& params, const ImageView<More>&... more) {
  each_element_grid(op, out, [&](const ElementGrid& grid, std::int64_t first) {
    const Pooling<T> p{grid,
                       {params.kernel.h, params.stride.h, params.padding.h},
                       {params.kernel.w, params.stride.w, params.padding.w},
                       image_of<const T>(grad, first),
                       image_of<const T>(x, first),
                       image_of<T>(out, first),
                       Computed<T>(1) / Computed<T>(params.kernel.h * params.kernel.w)};
    launch(op, out.device, {ceil_div(grid.size, kImageThreads)}, {kImageThreads}, kernel, p,
           more.from(first)...);
  });
}

// Up to kernel / stride windows contain a pixel along each axis. A separate pass finds each
// window's maximum once and writes its position, so that the search is not repeated for each pixel.
template <class T, class Place>
void max_gradient(In grad, In x, Out x_grad, const Pool2dParams& params) {
  const char* op = "max_pool2d_grad";
  const Temporary memory(std::size_t(size_of(grad)) * sizeof(Place), grad.device);
  const std::int64_t row = grad.shape[2] * grad.shape[3];
  const ImageView<Place> places{
      memory.as<Place>(),          grad.shape[1] * row,        row, grad.shape[3], 1,
      std::int32_t(grad.shape[1]), std::int32_t(grad.shape[2])};
  launch_pooling<T>(op, max_place_kernel<T, Place>, x, x, grad, params, places);
  launch_pooling<T>(op, max_grad_kernel<T, Place>, grad, x_grad, x_grad, params, places);
}

}  // namespace

void max_pool2d(In x, Out out, const Pool2dParams& params) {
  with_stored_float(x.dtype, [&]<class T>(Tag<T>) {
    launch_pooling<T>("max_pool2d", pool_kernel<T, Maximum<Computed<T>>>, x, x, out, params);
  });
}

void max_pool2d_grad(In grad, In x, Out x_grad, const Pool2dParams& params) {
  with_stored_float(x.dtype, [&]<class T>(Tag<T>) {
    const bool few = params.kernel.h * params.kernel.w <= 256;  // places of a byte
    const auto gradient = few ? max_gradient<T, std::uint8_t> : max_gradient<T, std::uint32_t>;
    gradient(grad, x, x_grad, params);
  });
}

void avg_pool2d(In x, Out out, const Pool2dParams& params) {
  with_stored_float(x.dtype, [&]<class T>(Tag<T>) {
    launch_pooling<T>("avg_pool2d", pool_kernel<T, Average<Computed<T>>>, x, x, out, params);
  });
}

void avg_pool2d_grad(In grad, Out x_grad, const Pool2dParams& params) {
  with_stored_float(grad.dtype, [&]<class T>(Tag<T>) {
    launch_pooling<T>("avg_pool2d_grad", average_grad_kernel<T>, grad, x_grad, x_grad, params);
  });
}

}  // namespace needle::cuda
