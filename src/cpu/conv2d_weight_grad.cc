// Computes the weight gradient of conv2d as a matrix product with a long k. k runs over the pixels
// of the output gradient. Rows are the (tap, input channel) pairs and columns the output channels,
// as in the result. A task processes one block of rows and one range of pixels. It packs its part
// of the patches slice by slice (never all of them) and writes a partial result. The partial
// results are added in order. Ranges depend on the shape alone, so the sum does not depend on the
// number of threads.
#include "conv_applied.h"
#include "conv_window_sums.h"
#include "core/thread_pool.h"
#include "depthwise.h"
#include "kernels.h"
#include "winograd_weight_grad.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kRowBlock =
    288;  // at most this many rows per task, so that their packed panels fit a part of L2
template <class T>
Index block_of(const WeightGradient<T>& w) {
  return round_up(ceil_div(w.rows(), ceil_div(w.rows(), kRowBlock)), Blocking<T>::MR);
}

// Returns elements [first, last) of a pixel's patch: in place if they are contiguous, otherwise as
// a copy in `room`.
template <class T>
const T* patch_of(const WeightGradient<T>& w, const Pixel& pixel, Index first, Index last,
                  T* room) {
  if (w.tap_count == 1 && w.x.channel_stride == 1) {
    const T* seen = source_of(w.x, w.grid, pixel, w.taps[0]);
    if (seen != nullptr) return seen + first;
  }
  copy_patch(w.x, w.grid, pixel, w.taps, first, last, room);
  return room;
}

// Copies n elements, `stride` apart, to one row of panels. Panels have kWidth columns and are
// `step` apart; the last one is zero-padded.
template <class T, Index kWidth>
[[gnu::always_inline]] inline void put_in_panels(const T* from, Index stride, Index n, T* to,
                                                 Index step) {
  Index e = 0;
  if (stride == 1) {
    for (; e + kWidth <= n; e += kWidth, to += step) {
      std::memcpy(to, from + e, kWidth * sizeof(T));
    }
  }
  for (; e < n; e += kWidth, to += step) {
    for (Index c = 0; c < kWidth; ++c) to[c] = e + c < n ? from[(e + c) * stride] : T(0);
  }
}

// The packed panels of some pixels: `seen` for a block of rows, `grads` for the output channels.
// Panels start in different cache sets, because every pixel writes part of a line to each of them.
template <class T>
struct PixelPanels {
  static constexpr Index kSeenStep = odd_lines(Blocking<T>::KC * Blocking<T>::MR);
  static constexpr Index kGradStep = odd_lines(Blocking<T>::KC * Blocking<T>::NR);
  T *seen, *grads, *patch;

  // Packs rows [first, last) and all output channels of pixels [begin, begin + k).
  void pack(const WeightGradient<T>& w, Index begin, Index k, Index first, Index last) const {
    constexpr Index MR = Blocking<T>::MR, NR = Blocking<T>::NR;
    Pixel pixel = pixel_at(w.grid, begin);
    for (Index p = 0; p < k; ++p) {
      put_in_panels<T, MR>(patch_of(w, pixel, first, last, patch), 1, last - first, seen + p * MR,
                           kSeenStep);
      put_in_panels<T, NR>(w.grad.at(pixel.n, pixel.i, pixel.j), w.grad.channel_stride,
                           w.grad.channels, grads + p * NR, kGradStep);
      advance(w.grid, pixel);
    }
  }
};

// Computes rows [first, last) of a partial result (rows, outputs), summed over pixels [begin, end).
template <class T>
void sum_range(const WeightGradient<T>& w, Index begin, Index end, Index first, Index last,
               T* partial) {
  using B = Blocking<T>;
  using Panels = PixelPanels<T>;
  const Index rows = last - first, outputs = w.grad.channels;
  const ThreadScratch seen(bytes_for<T>(ceil_div(rows, B::MR) * Panels::kSeenStep));
  const ThreadScratch grads(bytes_for<T>(ceil_div(outputs, B::NR) * Panels::kGradStep));
  const ThreadScratch patch(bytes_for<T>(rows));
  const Panels panels{seen.as<T>(), grads.as<T>(), patch.as<T>()};
  for (Index p = begin; p < end; p += B::KC) {
    const Index k = smaller(B::KC, end - p);
    panels.pack(w, p, k, first, last);
    for (Index o = 0; o < outputs; o += B::NR) {
      for (Index i = 0; i < rows; i += B::MR) {
        const TileOut<T> out{
            partial + (first + i) * outputs + o, outputs,  1, smaller(B::MR, rows - i),
            smaller(B::NR, outputs - o),         p > begin};
        with_tile<T>(out.rows, out.columns, [&]<int R, int V>() {
          packed_tile<T, R, V>(k, panels.seen + i / B::MR * Panels::kSeenStep,
                               panels.grads + o / B::NR * Panels::kGradStep, B::NR, out);
        });
      }
    }
  }
}

template <class T>
void group_gradient(WeightGradient<T>& w, const WeightTarget<T>& out) {
  const Index pixels = w.grid.size(), size = w.rows() * w.grad.channels;
  const Index block = block_of(w), blocks = ceil_div(w.rows(), block);
  cut(w, pixels, kSmallestRange, size, ceil_div(kRangeTasks, blocks), Blocking<T>::KC);
  const ThreadScratch memory(bytes_for<T>(w.ranges * size));
  T* const partials = memory.as<T>();
  if (pixels == 0) clear(partials, size);
  parallel_for(pixels == 0 ? 0 : blocks * w.ranges, 1, [&](Index first_task, Index last_task) {
    for (Index task = first_task; task < last_task; ++task) {
      const Index begin = task / blocks * w.range, first = task % blocks * block;
      sum_range(w, begin, smaller(begin + w.range, pixels), first, smaller(first + block, w.rows()),
                partials + task / blocks * size);
    }
  });
  add_partials(w, partials, w.grad.channels, out);
}

// ---- windows -----------------------------------------------------------------------------------

// The measured cost of packing one element, in units of a multiply-add at full speed.
constexpr double kPanelCost = 6;

template <class T>
double rows_cost(const WeightGradient<T>& w) {
  using B = Blocking<T>;
  const double sums = double(round_up(w.rows(), B::MR) * round_up(w.grad.channels, B::W));
  const bool in_place = w.tap_count == 1 && w.x.channel_stride == 1;
  const double seen = in_place ? kPanelCost * double(w.rows() + w.grad.channels)
                               : patch_cost(w.x, w.taps, w.tap_count);
  return double(w.grid.size()) * (sums + seen);
}

template <class T>
void windows_gradient(WeightGradient<T>& w, const WindowSums<T>& s, const WeightTarget<T>& out) {
  const Index enough = ceil_div(kSmallestRange, s.rows * s.windows.grid.columns);
  cut(w, s.units(), enough, s.partial_size());
  const ThreadScratch partials(bytes_for<T>(w.ranges * s.partial_size()));
  each_range(w, s.units(), partials.as<T>(), s.partial_size(),
             [&](Index begin, Index end, T* partial) { sum_units(s, begin, end, partial); });
  add_partials(w, partials.as<T>(), s.filled(), out);
}

// ---- depthwise ---------------------------------------------------------------------------------

template <class T>
void depthwise_gradient(WeightGradient<T>& w, const View& weight_grad) {
  const Index rows = w.grid.images * w.grid.rows, elements = w.rows();
  cut(w, rows, ceil_div(kSmallestRange, larger(1, w.grid.columns)), elements);
  const ThreadScratch partials(bytes_for<T>(w.ranges * elements));
  each_range(w, rows, partials.as<T>(), elements,
             [&](Index begin, Index end, T* partial) { sum_rows(w, begin, end, partial); });
  w.grad.channels = 1;  // of each filter
  add_partials<T>(w, partials.as<T>(), 1, {data_of<T>(weight_grad), weight_grad.strides[3], 1});
}

template <class T>
void one_group(WeightGradient<T>& w, const Geometry& geometry, const View& weight_grad,
               const WeightTarget<T>& out) {
  if constexpr (sizeof(T) == 4) {
    if (uses_winograd(w)) return run_winograd_gradient(winograd_gradient(w), out);
  }
  if (w.grid.size() > 0) {
    const WindowSums<T> sums =
        window_sums_of(windows_of(w.x, w.grid, weight_grad, geometry), w.grad);
    if (window_sums_cost(sums) < rows_cost(w)) return windows_gradient(w, sums, out);
  }
  group_gradient(w, out);
}

template <class T>
void weight_gradient(const View& grad, const View& x, const View& whole,
                     const Geometry& whole_geometry) {
  const Kernel kernel = applied_kernel<T>(x, whole, grad, whole_geometry);
  const View& weight_grad = kernel.weight;
  const Geometry& geometry = kernel.geometry;
  if (size_of(weight_grad) < size_of(whole)) fill(whole, 0, 0);
  const ThreadScratch taps(bytes_for<Tap>(weight_grad.shape[0] * weight_grad.shape[1]));
  const Index count = forward_taps(weight_grad, geometry, taps.as<Tap>());
  const Grid grid{grad.shape[0], grad.shape[1], grad.shape[2], geometry.stride};
  WeightGradient<T> all{image_of<const T>(grad), image_of<const T>(x), grid, taps.as<Tap>(), count};
  if (is_depthwise(all.grad, all.x, weight_grad, geometry.groups))
    return depthwise_gradient(all, weight_grad);
  const Index inputs = weight_grad.shape[2], outputs = weight_grad.shape[3] / geometry.groups;
  if (inputs == 0 || outputs == 0) return;
  for (Index g = 0; g < geometry.groups; ++g) {
    WeightGradient<T> part = all;
    part.grad = all.grad.group(g * outputs, outputs);
    part.x = all.x.group(g * inputs, inputs);
    T* const first = data_of<T>(weight_grad) + g * outputs * weight_grad.strides[3];
    one_group(part, geometry, weight_grad, {first, weight_grad.strides[2], weight_grad.strides[3]});
  }
}

}  // namespace

void conv2d_weight_grad(In grad, In x, Out weight_grad, const Geometry& geometry) {
  with_float(weight_grad.dtype,
             [&]<class T>(Tag<T>) { weight_gradient<T>(grad, x, weight_grad, geometry); });
}

}  // namespace needle::cpu::NEEDLE_ISA
