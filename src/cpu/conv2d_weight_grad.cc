// The weight gradient of conv2d as a matrix product whose long side is k: k runs over the pixels of
// the output gradient, rows are output channels, columns the (tap, input channel) pairs. A task
// takes one block of columns and one range of pixels, copies its part of the patches slice by slice
// (never all of them) and leaves a partial result; the partial results are added in their order.
// Ranges depend on the shape alone, so the sum does not depend on the number of threads.
#include "conv_window_sums.h"
#include "core/thread_pool.h"
#include "depthwise.h"
#include "kernels.h"
#include "winograd_weight_grad.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kColumnBlock = 256;
constexpr Index kEnoughTasks = 64;
constexpr Index kSmallestRange = 1024;       // pixels
constexpr Index kPartialElements = 1 << 22;  // of all partial results together

template <class T>
struct WeightGradient {
  Image<const T> grad, x;  // of one group
  Grid grid;
  const Tap* taps;
  Index tap_count;
  Index ranges, range;  // how the pixels are cut

  Index columns() const { return tap_count * x.channels; }
};

template <class T>
void cut_pixels(WeightGradient<T>& w) {
  const Index pixels = w.grid.size(), blocks = larger(1, ceil_div(w.columns(), kColumnBlock));
  const Index elements = larger(1, w.columns() * w.grad.channels);
  Index ranges = smaller(ceil_div(kEnoughTasks, blocks), kPartialElements / elements);
  ranges = larger(1, smaller(ranges, pixels / kSmallestRange));
  w.range = round_up(larger(1, ceil_div(pixels, ranges)), Blocking<T>::KC);
  w.ranges = larger(1, ceil_div(pixels, w.range));
}

// Output channels of pixels [begin, end) as packed_tile wants its left operand.
template <class T>
void pack_gradient(const WeightGradient<T>& w, Index begin, Index end, T* packed) {
  constexpr Index MR = Blocking<T>::MR;
  const Index k = end - begin, outputs = w.grad.channels, stride = w.grad.channel_stride;
  Pixel pixel = pixel_at(w.grid, begin);
  for (Index p = 0; p < k; ++p) {
    const T* from = w.grad.at(pixel.n, pixel.i, pixel.j);
    for (Index o = 0; o < outputs; o += MR) {
      T* to = packed + o * k + p * MR;
      for (Index r = 0; r < MR; ++r) to[r] = o + r < outputs ? from[(o + r) * stride] : T(0);
    }
    advance(w.grid, pixel);
  }
}

// Columns [first, last) of the patches of pixels [begin, end), row by row, padded to whole panels.
template <class T>
void copy_rows(const WeightGradient<T>& w, Index begin, Index end, Index first, Index last, T* rows,
               Index row_size) {
  Pixel pixel = pixel_at(w.grid, begin);
  for (Index p = begin; p < end; ++p, rows += row_size) {
    copy_patch(w.x, w.grid, pixel, w.taps, first, last, rows);
    for (Index j = last - first; j < row_size; ++j) rows[j] = T(0);
    advance(w.grid, pixel);
  }
}

// partial (outputs, columns): columns [first, last), summed over pixels [begin, end).
template <class T>
void sum_range(const WeightGradient<T>& w, Index begin, Index end, Index first, Index last,
               T* partial) {
  using B = Blocking<T>;
  const Index outputs = w.grad.channels, columns = w.columns();
  const Index row_size = round_up(last - first, B::NR);
  const Scratch packed(bytes_for<T>(round_up(outputs, B::MR) * B::KC));
  const Scratch rows(bytes_for<T>(B::KC * row_size));
  for (Index p = begin; p < end; p += B::KC) {
    const Index k = smaller(B::KC, end - p);
    pack_gradient(w, p, p + k, packed.as<T>());
    copy_rows(w, p, p + k, first, last, rows.as<T>(), row_size);
    for (Index j = first; j < last; j += B::NR) {
      for (Index o = 0; o < outputs; o += B::MR) {
        packed_tile<T>(k, packed.as<T>() + o * k, rows.as<T>() + j - first, row_size,
                       {partial + o * columns + j, columns, 1, smaller(B::MR, outputs - o),
                        smaller(B::NR, last - j), p > begin});
      }
    }
  }
}

// weight_grad[tap, c, o] = the sum of the partial results, first to last.
template <class T>
void add_partials(const WeightGradient<T>& w, const T* partials, const View& weight_grad, T* to) {
  const Index outputs = w.grad.channels, columns = w.columns();
  parallel_for(columns, 64, [&](Index begin, Index end) {
    for (Index column = begin; column < end; ++column) {
      T* target = to + w.taps[column / w.x.channels].weight +
                  column % w.x.channels * weight_grad.strides[2];
      for (Index o = 0; o < outputs; ++o) {
        T sum = T(0);
        for (Index r = 0; r < w.ranges; ++r) sum += partials[(r * outputs + o) * columns + column];
        target[o * weight_grad.strides[3]] = sum;
      }
    }
  });
}

template <class T>
void group_gradient(const WeightGradient<T>& w, const View& weight_grad, T* to) {
  const Index pixels = w.grid.size(), outputs = w.grad.channels, columns = w.columns();
  const Scratch partials(bytes_for<T>(w.ranges * outputs * columns));
  if (pixels == 0) {
    for (Index i = 0; i < outputs * columns; ++i) partials.as<T>()[i] = T(0);
  }
  const Index blocks = ceil_div(columns, kColumnBlock);
  parallel_for(pixels == 0 ? 0 : blocks * w.ranges, 1, [&](Index first_task, Index last_task) {
    for (Index task = first_task; task < last_task; ++task) {
      const Index begin = task / blocks * w.range, first = task % blocks * kColumnBlock;
      sum_range(w, begin, smaller(begin + w.range, pixels), first,
                smaller(first + kColumnBlock, columns),
                partials.as<T>() + task / blocks * outputs * columns);
    }
  });
  add_partials(w, partials.as<const T>(), weight_grad, to);
}

// ---- windows -----------------------------------------------------------------------------------

template <class T>
double rows_cost(const WeightGradient<T>& w) {
  using B = Blocking<T>;
  const double sums = double(round_up(w.grad.channels, B::MR) * round_up(w.columns(), B::NR));
  return double(w.grid.size()) * (sums + patch_cost(w.x, w.taps, w.tap_count));
}

template <class T>
void cut_units(WeightGradient<T>& w, const WindowSums<T>& s) {
  const Index enough = ceil_div(kSmallestRange, s.rows * s.windows.grid.columns);
  Index ranges = smaller(kEnoughTasks, kPartialElements / larger(1, s.partial_size()));
  ranges = larger(1, smaller(ranges, s.units() / enough));
  w.range = ceil_div(s.units(), ranges);
  w.ranges = ceil_div(s.units(), w.range);
}

template <class T>
void windows_gradient(WeightGradient<T>& w, const WindowSums<T>& s, const View& weight_grad,
                      T* to) {
  cut_units(w, s);
  const Index size = s.partial_size(), channels = w.x.channels;
  const Scratch partials(bytes_for<T>(w.ranges * size));
  parallel_for(w.ranges, 1, [&](Index first, Index last) {
    for (Index task = first; task < last; ++task) {
      sum_units(s, task * w.range, smaller(s.units(), (task + 1) * w.range),
                partials.as<T>() + task * size);
    }
  });
  parallel_for(w.columns(), 64, [&](Index begin, Index end) {
    for (Index column = begin; column < end; ++column) {
      const Tap& tap = w.taps[column / channels];
      T* target = to + tap.weight + column % channels * weight_grad.strides[2];
      T* sums = partials.as<T>() + column * s.filled();
      for (Index r = 1; r < w.ranges; ++r) {
        for (Index o = 0; o < s.filled(); ++o) sums[o] += sums[r * size + o];
      }
      for (Index o = 0; o < w.grad.channels; ++o) target[o * weight_grad.strides[3]] = sums[o];
    }
  });
}

// ---- depthwise ---------------------------------------------------------------------------------

template <class T>
void depthwise_gradient(WeightGradient<T>& w, const View& weight_grad) {
  const DepthwiseSums<T> d{w.grad, w.x, w.grid, w.taps, w.tap_count};
  const Index rows = w.grid.images * w.grid.rows, elements = w.tap_count * w.x.channels;
  Index ranges = smaller(kEnoughTasks, kPartialElements / larger(1, elements));
  ranges = larger(1, smaller(ranges, rows / ceil_div(kSmallestRange, larger(1, w.grid.columns))));
  w.range = larger(1, ceil_div(rows, ranges));
  w.ranges = larger(1, ceil_div(rows, w.range));
  const Scratch partials(bytes_for<T>(w.ranges * elements));
  parallel_for(w.ranges, 1, [&](Index first, Index last) {
    for (Index task = first; task < last; ++task) {
      sum_rows(d, task * w.range, smaller(rows, (task + 1) * w.range),
               partials.as<T>() + task * elements);
    }
  });
  for (Index t = 0; t < w.tap_count; ++t) {
    T* to = data_of<T>(weight_grad) + w.taps[t].weight;
    for (Index c = 0; c < w.x.channels; ++c) {
      T sum = T(0);
      for (Index r = 0; r < w.ranges; ++r) {
        sum += partials.as<T>()[r * elements + t * w.x.channels + c];
      }
      to[c * weight_grad.strides[3]] = sum;
    }
  }
}

template <class T>
void one_group(WeightGradient<T>& w, const Conv2dParams& params, const View& weight_grad, T* to) {
  if constexpr (sizeof(T) == 4) {
    if (uses_winograd(w.grad, w.x, w.grid, w.taps, w.tap_count)) {
      return run_winograd_gradient(winograd_gradient(w.grad, w.x, w.grid, w.taps), to,
                                   weight_grad.strides[2], weight_grad.strides[3]);
    }
  }
  if (w.grid.size() > 0) {
    const WindowSums<T> sums = window_sums_of(windows_of(w.x, w.grid, weight_grad, params), w.grad);
    if (window_sums_cost(sums) < rows_cost(w)) return windows_gradient(w, sums, weight_grad, to);
  }
  cut_pixels(w);
  group_gradient(w, weight_grad, to);
}

template <class T>
void weight_gradient(const View& grad, const View& x, const View& weight_grad,
                     const Conv2dParams& params) {
  const Scratch taps(bytes_for<Tap>(weight_grad.shape[0] * weight_grad.shape[1]));
  const Index count = forward_taps(weight_grad, params, taps.as<Tap>());
  const Grid grid{grad.shape[0], grad.shape[1], grad.shape[2], params.stride};
  WeightGradient<T> all{
      image_of<const T>(grad), image_of<const T>(x), grid, taps.as<Tap>(), count, 0, 0};
  if (is_depthwise(all.grad, all.x, weight_grad, params.groups))
    return depthwise_gradient(all, weight_grad);
  const Index inputs = weight_grad.shape[2], outputs = weight_grad.shape[3] / params.groups;
  if (inputs == 0 || outputs == 0) return;
  for (Index g = 0; g < params.groups; ++g) {
    WeightGradient<T> part = all;
    part.grad = all.grad.group(g * outputs, outputs);
    part.x = all.x.group(g * inputs, inputs);
    one_group(part, params, weight_grad,
              data_of<T>(weight_grad) + g * outputs * weight_grad.strides[3]);
  }
}

}  // namespace

void conv2d_weight_grad(In grad, In x, Out weight_grad, const Conv2dParams& params) {
  with_float(weight_grad.dtype, [&](auto tag) {
    weight_gradient<typename decltype(tag)::type>(grad, x, weight_grad, params);
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
