// conv2d and its input gradient as implicit matrix products over channels-last images: rows are the
// pixels of a grid, k runs over the taps' channels, columns are the output channels. The product's
// left operand never exists: the micro-kernel is handed, for each tap, pointers to the channels of
// the pixels of its tile (a pointer to zeros outside the image).
//
// The input gradient is the same product on the output gradient: input pixels whose coordinates
// agree modulo the stride are one grid, which sees through those taps alone that reach it.
// A bias is where the sums begin. Few channels, or channels that are not neighbours, are first
// copied into patches, a chunk of pixels at a time.
#include "conv_planes.h"
#include "core/thread_pool.h"
#include "depthwise.h"
#include "kernels.h"
#include "winograd.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr int kChunkTiles = 16;     // tiles of MR pixels in a task
constexpr Index kFewChannels = 8;   // below, the pointers would cost more than copies
constexpr Index kEnoughTasks = 64;  // with fewer, the output channels are split too

template <class T>
bool copies_patches(const TapProduct<T>& p) {
  return p.source.channel_stride != 1 || p.source.channels < kFewChannels;
}

// Panels of NR output channels: each the rows (tap, channel) one after the other.
template <class T>
void pack_weights(const TapProduct<T>& p, T* packed) {
  constexpr Index NR = Blocking<T>::NR;
  for (Index j = 0; j < p.out.channels; j += NR) {
    for (Index t = 0; t < p.tap_count; ++t, packed += p.source.channels * NR) {
      pack_b(p.weight + p.taps[t].weight + j * p.output_stride, p.input_stride, p.output_stride,
             p.source.channels, smaller(NR, p.out.channels - j), packed);
    }
  }
}

// The left operand of a chunk of pixels as runs of pointers, for rows_tile.
template <class T>
struct Rows {
  Index runs, length;  // along k
  const T** pointers;  // [tile][run][MR]
  const T* const* tile(Index t) const { return pointers + t * runs * Blocking<T>::MR; }
};

template <class T>
Rows<T> point_at_channels(const TapProduct<T>& p, Index begin, Index end, const T* zeros,
                          const T** pointers) {
  constexpr Index MR = Blocking<T>::MR;
  Pixel pixel = pixel_at(p.grid, begin);
  for (Index at = 0; at < round_up(end - begin, MR); ++at) {
    const T** column = pointers + at / MR * p.tap_count * MR + at % MR;
    for (Index t = 0; t < p.tap_count; ++t) {
      const T* source = begin + at < end ? source_of(p.source, p.grid, pixel, p.taps[t]) : nullptr;
      column[t * MR] = source != nullptr ? source : zeros;
    }
    advance(p.grid, pixel);
  }
  return {p.tap_count, p.source.channels, pointers};
}

template <class T>
Rows<T> copy_patches(const TapProduct<T>& p, Index begin, Index end, T* patches,
                     const T** pointers) {
  const Index depth = p.depth();
  Pixel pixel = pixel_at(p.grid, begin);
  for (Index at = 0; at < round_up(end - begin, Blocking<T>::MR); ++at) {
    const Index row = smaller(at, end - begin - 1);
    pointers[at] = patches + row * depth;
    if (begin + at >= end) continue;
    copy_patch(p.source, p.grid, pixel, p.taps, 0, depth, patches + at * depth);
    advance(p.grid, pixel);
  }
  return {1, depth, pointers};
}

// Pixels [0, pixels) times the panels of columns [first, last), overwriting or added to what is
// there; runs in slices that keep a panel's part in L1.
template <class T>
void multiply_rows(const Rows<T>& rows, Index pixels, const T* packed, Index first, Index last,
                   T* out, Index pixel_stride, bool add) {
  constexpr int MR = Blocking<T>::MR;
  constexpr Index NR = Blocking<T>::NR;
  const Index slice = larger(1, Blocking<T>::KC / larger(rows.length, 1));
  Index run = 0;
  do {
    const Index runs = smaller(slice, rows.runs - run);
    for (Index j = first; j < last; j += NR) {
      const T* panel = packed + (j * rows.runs + run * NR) * rows.length;
      for (Index i = 0; i < pixels; i += MR) {
        rows_tile<T, MR>(runs, rows.length, rows.tile(i / MR) + run * MR, 1, panel, NR,
                         {out + i * pixel_stride + j, pixel_stride, 1, smaller(MR, pixels - i),
                          smaller(NR, last - j), add || run > 0});
      }
    }
    run += runs;
  } while (run < rows.runs);
}

// Whether consecutive pixels of the grid lie at one distance, their channels side by side.
template <class T>
bool is_linear(const Image<T>& out) {
  return out.channel_stride == 1 &&
         (out.height == 1 || out.row_stride == out.width * out.column_stride) &&
         (out.images == 1 || out.image_stride == out.height * out.width * out.column_stride);
}

// Writes columns [first, last) of a chunk computed aside.
template <class T>
void scatter_rows(const TapProduct<T>& p, Index begin, Index end, const T* rows, Index first,
                  Index last) {
  Pixel pixel = pixel_at(p.grid, begin);
  for (Index at = begin; at < end; ++at, rows += p.out.channels) {
    T* to = p.out.at(pixel.n, pixel.i, pixel.j);
    for (Index o = first; o < last; ++o) to[o * p.out.channel_stride] = rows[o];
    advance(p.grid, pixel);
  }
}

// The rows of results begin with the bias, if there is one.
template <class T>
void set_bias(const T* bias, Index pixels, Index first, Index last, T* out, Index pixel_stride) {
  if (bias == nullptr) return;
  for (Index at = 0; at < pixels; ++at, out += pixel_stride) {
    for (Index o = first; o < last; ++o) out[o] = bias[o];
  }
}

template <class T>
void run_chunk(const TapProduct<T>& p, Index begin, Index end, Index first, Index last,
               const T* packed, const T* zeros) {
  const Index room = round_up(end - begin, Blocking<T>::MR), outputs = p.out.channels;
  const bool copies = copies_patches(p);
  const Scratch pointers(bytes_for<T*>(room * (copies ? 1 : p.tap_count)));
  const Scratch patches(bytes_for<T>(copies ? room * p.depth() : 0));
  const Rows<T> rows = copies
                           ? copy_patches(p, begin, end, patches.as<T>(), pointers.as<const T*>())
                           : point_at_channels(p, begin, end, zeros, pointers.as<const T*>());
  const bool linear = is_linear(p.out);
  const Scratch aside(bytes_for<T>(linear ? 0 : (end - begin) * outputs));
  T* out = linear ? p.out.data + begin * p.out.column_stride : aside.as<T>();
  const Index pixel_stride = linear ? p.out.column_stride : outputs;
  set_bias(p.bias, end - begin, first, last, out, pixel_stride);
  multiply_rows(rows, end - begin, packed, first, last, out, pixel_stride, p.bias != nullptr);
  if (!linear) scatter_rows(p, begin, end, aside.as<const T>(), first, last);
}

// Whether vectors of pixels cost less than vectors of output channels.
template <class T>
bool planes_are_better(const TapProduct<T>& p) {
  if (p.grid.step.h != 1 || p.grid.step.w != 1 || p.tap_count == 0) return false;
  const Index depth = p.depth(), outputs = p.out.channels, height = tile_channels<T>(outputs);
  const Index copies = copies_patches(p) ? patch_cost(p.source, p.taps, p.tap_count) : 0;
  const Index by_rows =
      p.grid.rows * p.grid.columns * (round_up(outputs, Blocking<T>::NR) * depth + copies);
  const PlaneLayout layout = plane_layout(p.grid, p.taps, p.tap_count, p.source.channels);
  const Index planes = p.source.channels * layout.plane_size + outputs * layout.positions();
  const Index by_planes =
      layout.bands * (layout.positions() * round_up(outputs, height) * depth + kPlaneCost * planes);
  return by_planes < by_rows;
}

template <class T>
void run_product(const TapProduct<T>& p) {
  constexpr Index NR = Blocking<T>::NR;
  const Index pixels = p.grid.size(), outputs = p.out.channels;
  if (pixels == 0 || outputs == 0) return;
  if constexpr (sizeof(T) == 4) {
    if (uses_winograd(p)) return run_winograd(p);
  }
  if (planes_are_better(p)) return run_planes(p);
  const Scratch packed(bytes_for<T>(round_up(outputs, NR) * p.depth()));
  pack_weights(p, packed.as<T>());
  const Scratch zeros(bytes_for<T>(p.source.channels));
  for (Index c = 0; c < p.source.channels; ++c) zeros.as<T>()[c] = T(0);

  constexpr Index kChunk = kChunkTiles * Blocking<T>::MR;
  const Index chunks = ceil_div(pixels, kChunk);
  const Index parts = smaller(ceil_div(outputs, NR), ceil_div(kEnoughTasks, chunks));
  const Index part = round_up(ceil_div(outputs, parts), NR);
  parallel_for(chunks * parts, 1, [&](Index first_task, Index last_task) {
    for (Index task = first_task; task < last_task; ++task) {
      const Index begin = task % chunks * kChunk, first = task / chunks * part;
      if (first >= outputs) continue;
      run_chunk(p, begin, smaller(begin + kChunk, pixels), first, smaller(first + part, outputs),
                packed.as<const T>(), zeros.as<const T>());
    }
  });
}

template <class T>
void forward(const View& x, const View& weight, const T* bias, const View& out,
             const Conv2dParams& params) {
  const Image<const T> source = image_of<const T>(x);
  const Image<T> target = image_of<T>(out);
  const Grid grid{target.images, target.height, target.width, params.stride};
  const Scratch taps(bytes_for<Tap>(weight.shape[0] * weight.shape[1]));
  const Index count = forward_taps(weight, params, taps.as<Tap>());
  if (is_depthwise(weight, params.groups)) {
    return depthwise(source, target, grid, taps.as<Tap>(), count, weight, bias);
  }
  const Index inputs = weight.shape[2], outputs = weight.shape[3] / params.groups;
  for (Index g = 0; g < params.groups; ++g) {
    run_product<T>({source.group(g * inputs, inputs), target.group(g * outputs, outputs), grid,
                    taps.as<Tap>(), count,
                    data_of<const T>(weight) + g * outputs * weight.strides[3], weight.strides[2],
                    weight.strides[3], bias != nullptr ? bias + g * outputs : nullptr});
  }
}

template <class T>
void forward_with_bias(const View& x, const View& weight, const View& bias, const View& out,
                       const Conv2dParams& params) {
  const Scratch values(bytes_for<T>(bias.shape[0]));
  for (Index o = 0; o < bias.shape[0]; ++o) {
    values.as<T>()[o] = data_of<const T>(bias)[o * bias.strides[0]];
  }
  forward<T>(x, weight, values.as<const T>(), out, params);
}

// ---- input gradient ----------------------------------------------------------------------------

// One axis of a tap: input pixels at `phase` modulo the stride see through kernel position k the
// gradient pixel `offset` beyond their own index; false if they see none.
bool reaches(Index phase, Index k, Index stride, Index padding, Index dilation, Index* offset) {
  const Index distance = phase + padding - k * dilation;
  *offset = distance / stride;
  return distance % stride == 0;
}

Index phase_taps(const View& weight, const Conv2dParams& params, Pair phase, Tap* taps) {
  Index count = 0;
  for (Index i = 0; i < weight.shape[0]; ++i) {
    for (Index j = 0; j < weight.shape[1]; ++j) {
      Tap tap{0, 0, i * weight.strides[0] + j * weight.strides[1]};
      if (reaches(phase.h, i, params.stride.h, params.padding.h, params.dilation.h, &tap.dy) &&
          reaches(phase.w, j, params.stride.w, params.padding.w, params.dilation.w, &tap.dx)) {
        taps[count++] = tap;
      }
    }
  }
  return count;
}

// Every stride-th pixel from `phase` on.
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

template <class T>
void phase_gradient(const Image<const T>& source, const Image<T>& target, const View& weight,
                    const Conv2dParams& params, const Tap* taps, Index count) {
  const Grid grid{target.images, target.height, target.width, {1, 1}};
  if (is_depthwise(weight, params.groups)) {
    return depthwise<T>(source, target, grid, taps, count, weight, nullptr);
  }
  const Index inputs = weight.shape[3] / params.groups, outputs = weight.shape[2];
  for (Index g = 0; g < params.groups; ++g) {
    run_product<T>({source.group(g * inputs, inputs), target.group(g * outputs, outputs), grid,
                    taps, count, data_of<const T>(weight) + g * inputs * weight.strides[3],
                    weight.strides[3], weight.strides[2]});
  }
}

template <class T>
void input_gradient(const View& grad, const View& weight, const View& x_grad,
                    const Conv2dParams& params) {
  const Scratch taps(bytes_for<Tap>(weight.shape[0] * weight.shape[1]));
  for (Index h = 0; h < smaller(params.stride.h, x_grad.shape[1]); ++h) {
    for (Index w = 0; w < smaller(params.stride.w, x_grad.shape[2]); ++w) {
      const Index count = phase_taps(weight, params, {h, w}, taps.as<Tap>());
      phase_gradient<T>(image_of<const T>(grad),
                        phase_of(image_of<T>(x_grad), {h, w}, params.stride), weight, params,
                        taps.as<Tap>(), count);
    }
  }
}

}  // namespace

void conv2d(In x, In weight, Out out, const Conv2dParams& params) {
  with_float(out.dtype, [&](auto tag) {
    forward<typename decltype(tag)::type>(x, weight, nullptr, out, params);
  });
}

void conv2d_bias(In x, In weight, In bias, Out out, const Conv2dParams& params) {
  with_float(out.dtype, [&](auto tag) {
    forward_with_bias<typename decltype(tag)::type>(x, weight, bias, out, params);
  });
}

void conv2d_input_grad(In grad, In weight, Out x_grad, const Conv2dParams& params) {
  with_float(x_grad.dtype, [&](auto tag) {
    input_gradient<typename decltype(tag)::type>(grad, weight, x_grad, params);
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
