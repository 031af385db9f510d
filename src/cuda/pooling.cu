// Max and average pooling over (N, H, W, C) images and their gradients. A thread computes one
// element; threads of a warp have neighbouring channels, so that their loads are whole cache lines,
// and what windows share is found in the cache. Gradients are gathered: the thread of an input
// element visits the windows that contain it, in order, so there are no atomics, results are
// reproducible bit for bit, and every element is written.
#include <limits>

#include "images.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

// The part of the pixels [first, last) that a window, or a set of windows, has along one axis.
struct Range {
  std::int32_t first, last;
};

struct Axis {
  std::int64_t kernel, stride, padding;

  // The pixels of window i that lie in the image.
  __device__ Range window(std::int64_t i, std::int32_t size) const {
    const std::int64_t first = i * stride - padding, last = first + kernel;
    return {std::int32_t(first < 0      ? 0
                         : first < size ? first
                                        : size),
            std::int32_t(last < 0      ? 0
                         : last < size ? last
                                       : size)};
  }
  // The windows, of `count`, that contain pixel y.
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
  ElementGrid grid;  // of what is written
  Axis down, across;
  Image<const T> grad, x;  // those that the kernel reads
  Image<T> out;
  T share;  // 1 / elements of a window
};

template <class T>
struct Maximum {
  static __device__ T nothing() { return -std::numeric_limits<T>::infinity(); }
  static __device__ T fold(T best, T value) {
    return ((value > best) | (value != value)) ? value : best;
  }
  static __device__ T result(T best, T) { return best; }

  // Returns true if pixel (y, x) is the first maximum of the window, row by row.
  static __device__ bool chooses(const Image<const T>& x, const T* image, Range rows, Range columns,
                                 std::int32_t y, std::int32_t at) {
    T best = image[rows.first * x.row + columns.first * x.column];
    std::int32_t best_y = rows.first, best_x = columns.first;
    for (std::int32_t i = rows.first; i < rows.last; ++i) {
#pragma unroll 1
      for (std::int32_t j = columns.first; j < columns.last; ++j) {
        const T value = image[i * x.row + j * x.column];
        if ((value > best) | ((value != value) & (best == best))) {
          best = value, best_y = i, best_x = j;
        }
      }
    }
    return best_y == y && best_x == at;
  }
};

template <class T>
struct Average {
  static __device__ T nothing() { return T(0); }
  static __device__ T fold(T sum, T value) { return sum + value; }
  static __device__ T result(T sum, T share) { return sum * share; }
};

template <class T, class Fold>
__global__ void __launch_bounds__(kImageThreads) pool_kernel(const __grid_constant__ Pooling<T> p) {
  at_element(p.grid, [&](const Pixel& pixel, std::uint32_t channel) {
    const Range rows = p.down.window(pixel.row, p.x.height);
    const Range columns = p.across.window(pixel.column, p.x.width);
    const T* image = p.x.at(pixel.image, 0, 0) + channel * p.x.channel;
    T folded = Fold::nothing();
    for (std::int32_t i = rows.first; i < rows.last; ++i) {
      for (std::int32_t j = columns.first; j < columns.last; ++j) {
        folded = Fold::fold(folded, image[i * p.x.row + j * p.x.column]);
      }
    }
    p.out.at(pixel.image, pixel.row, pixel.column)[channel * p.out.channel] =
        Fold::result(folded, p.share);
  });
}

template <class T, bool kMax>
__global__ void __launch_bounds__(kImageThreads)
    pool_grad_kernel(const __grid_constant__ Pooling<T> p) {
  at_element(p.grid, [&](const Pixel& pixel, std::uint32_t channel) {
    const Range down = p.down.windows(pixel.row, p.grad.height);
    const Range across = p.across.windows(pixel.column, p.grad.width);
    const T* image = p.x.at(pixel.image, 0, 0) + channel * p.x.channel;
    T sum = T(0);
    for (std::int32_t i = down.first; i < down.last; ++i) {
#pragma unroll 1
      for (std::int32_t j = across.first; j < across.last; ++j) {
        const T grad = p.grad.at(pixel.image, i, j)[channel * p.grad.channel];
        if constexpr (kMax) {
          const Range rows = p.down.window(i, p.x.height), columns = p.across.window(j, p.x.width);
          if (Maximum<T>::chooses(p.x, image, rows, columns, pixel.row, pixel.column)) sum += grad;
        } else {
          sum += grad * p.share;
        }
      }
    }
    p.out.at(pixel.image, pixel.row, pixel.column)[channel * p.out.channel] = sum;
  });
}

template <class T>
void launch_pooling(const char* op, void (*kernel)(Pooling<T>), In grad, In x, Out out,
                    const Pool2dParams& params) {
  each_element_grid(op, out, [&](const ElementGrid& grid, std::int64_t first) {
    const Pooling<T> p{grid,
                       {params.kernel.h, params.stride.h, params.padding.h},
                       {params.kernel.w, params.stride.w, params.padding.w},
                       image_of<const T>(grad, first),
                       image_of<const T>(x, first),
                       image_of<T>(out, first),
                       T(1) / T(params.kernel.h * params.kernel.w)};
    launch(op, out.device, {ceil_div(grid.size, kImageThreads)}, {kImageThreads}, kernel, p);
  });
}

}  // namespace

void max_pool2d(In x, Out out, const Pool2dParams& params) {
  with_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_pooling<T>("max_pool2d", pool_kernel<T, Maximum<T>>, x, x, out, params);
  });
}

void max_pool2d_grad(In grad, In x, Out x_grad, const Pool2dParams& params) {
  with_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_pooling<T>("max_pool2d_grad", pool_grad_kernel<T, true>, grad, x, x_grad, params);
  });
}

void avg_pool2d(In x, Out out, const Pool2dParams& params) {
  with_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_pooling<T>("avg_pool2d", pool_kernel<T, Average<T>>, x, x, out, params);
  });
}

void avg_pool2d_grad(In grad, Out x_grad, const Pool2dParams& params) {
  with_float(grad.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch_pooling<T>("avg_pool2d_grad", pool_grad_kernel<T, false>, grad, x_grad, x_grad, params);
  });
}

}  // namespace needle::cuda
