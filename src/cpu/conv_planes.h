// Convolution with few channels, for conv2d.cc. It uses vectors of pixels, since a vector of
// channels would be mostly padding. A band of image rows is copied into planes, one for each
// channel, with zeros around it. Pixel (i, j) of the grid is then position i * pitch + j, and a tap
// is the same offset from every position. So vectors run over positions, across the ends of rows.
// The results at the few positions between two rows are computed but not used. The step must be one
// pixel.
#pragma once

#include "conv_windows.h"
#include "core/thread_pool.h"
#include "interleave.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

struct PlaneLayout {
  Index dy, dx;      // of the topmost and the leftmost tap
  Index halo;        // rows of a plane in addition to the band's
  Index pitch;       // from one row of a plane to the next
  Index rows;        // of a band; the last band of an image may have fewer
  Index bands;       // in an image
  Index plane_size;  // from one plane to the next

  Index positions() const { return rows * pitch; }
};

constexpr Index kBandPositions = 2048;
constexpr Index kPlaneElements = 1 << 15;  // of all planes of a band

// Requires at least one tap.
[[maybe_unused]] PlaneLayout plane_layout(const Grid& grid, const Tap* taps, Index count,
                                          Index channels) {
  Index top = taps[0].dy, bottom = top, left = taps[0].dx, right = left;
  for (Index t = 1; t < count; ++t) {
    top = smaller(top, taps[t].dy), bottom = larger(bottom, taps[t].dy);
    left = smaller(left, taps[t].dx), right = larger(right, taps[t].dx);
  }
  const Index halo = bottom - top, pitch = grid.columns + right - left;
  const Index room = kPlaneElements / larger(1, channels * pitch) - halo;
  const Index most = larger(1, smaller(room, kBandPositions / larger(1, pitch)));
  const Index bands = larger(1, ceil_div(grid.rows, most));
  const Index rows = ceil_div(grid.rows, bands);
  return {top, left, halo, pitch, rows, bands, (rows + halo) * pitch};
}

// Returns the number of elements of all planes, with slack for vectors that reach past the last
// one.
template <class T>
Index plane_room(const PlaneLayout& layout, Index channels) {
  return channels * layout.plane_size + 2 * Blocking<T>::NR;
}

// Writes the offset of each (tap, channel) value from a position to `offsets`.
[[maybe_unused]] void plane_offsets(const PlaneLayout& layout, const Tap* taps, Index count,
                                    Index channels, Index* offsets) {
  for (Index t = 0; t < count; ++t) {
    const Index offset = (taps[t].dy - layout.dy) * layout.pitch + taps[t].dx - layout.dx;
    for (Index c = 0; c < channels; ++c) *offsets++ = offset + c * layout.plane_size;
  }
}

// Copies columns [x, x + count) of row y of image n. Each channel becomes a contiguous row in its
// own plane; planes are `size` apart.
template <class T>
void copy_columns(const Image<const T>& image, Index n, Index y, Index x, Index count, T* to,
                  Index size) {
  const T* from = image.at(n, y, x);
  const Index step = image.column_stride, channels = image.channels;
  if (image.channel_stride == 1 && 2 * channels >= Blocking<T>::W && step >= channels) {
    return separate(from, step, channels, count, end_of(image), to, size);
  }
  for (Index c = 0; c < channels; ++c, from += image.channel_stride, to += size) {
    for (Index e = 0; e < count; ++e) to[e] = from[e * step];
  }
}

// Copies the pixels of image n that rows [row, row + rows) of the grid read to `planes`.
template <class T>
void copy_planes(const Image<const T>& image, const PlaneLayout& layout, Index n, Index row,
                 Index rows, T* planes) {
  const Index left = smaller(larger(-layout.dx, 0), layout.pitch);  // columns before the image
  const Index right = larger(left, smaller(image.width - layout.dx, layout.pitch));
  const Index size = layout.plane_size;
  for (Index i = 0; i < layout.rows + layout.halo; ++i) {
    T* const line = planes + i * layout.pitch;
    const Index y = row + i + layout.dy;
    const bool seen = i < rows + layout.halo && y >= 0 && y < image.height && left < right;
    if (seen) copy_columns(image, n, y, layout.dx + left, right - left, line + left, size);
    for (Index c = 0; c < image.channels; ++c) {
      clear(line + c * size, seen ? left : layout.pitch);
      if (seen) clear(line + c * size + right, layout.pitch - right);
    }
  }
  clear(planes + image.channels * size, 2 * Blocking<T>::NR);
}

// ---- the product -------------------------------------------------------------------------------

// Computes R output channels for 2 vectors of positions. `weights` has k rows of R elements.
template <class T, int R, bool kShort>
[[gnu::noinline]] void planes_tile(Index k, const Index* offsets, const T* weights, const T* planes,
                                   T* out, Index row_size) {
  Vector<T> acc[R][2] = {};
  add_in_parts<T, kShort>(k, acc, [&] {
    outer_product<T, R>(acc, planes + *offsets++, [weights](int i) { return weights[i]; });
    weights += R;
  });
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i, out += row_size) {
    store<T>(out, acc[i][0]);
    store<T>(out + Blocking<T>::W, acc[i][1]);
  }
}

template <class T>
using PlanesTile = void (*)(Index, const Index*, const T*, const T*, T*, Index);

template <class T, int R = Blocking<T>::MR>
PlanesTile<T> planes_tile_of(Index rows, Index k) {
  if constexpr (R > 1) {
    if (rows < R) return planes_tile_of<T, R - 1>(rows, k);
  }
  return partial_of(k) == k ? &planes_tile<T, R, true> : &planes_tile<T, R, false>;
}

// Returns the number of output channels per tile that gives the fewest tiles, evenly filled.
template <class T>
Index tile_channels(Index outputs) {
  return ceil_div(outputs, ceil_div(outputs, Blocking<T>::MR));
}

// Packs the weights of `height` output channels per tile. A tile has one row per (tap, channel).
template <class T>
void pack_plane_weights(const TapProduct<T>& p, Index height, T* packed) {
  for (Index o = 0; o < p.out.channels; o += height) {
    for (Index t = 0; t < p.tap_count; ++t) {
      for (Index c = 0; c < p.source.channels; ++c) {
        const T* from = p.weight + p.taps[t].weight + c * p.input_stride;
        for (Index r = o; r < o + height; ++r) {
          *packed++ = r < p.out.channels ? from[r * p.output_stride] : T(0);
        }
      }
    }
  }
}

// Adds the bias, applies ReLU and writes rows [row, row + rows) of output image n. `results` has
// one row of `row_size` positions per output channel.
template <class T>
void write_band(const TapProduct<T>& p, const PlaneLayout& layout, Index n, Index row, Index rows,
                const T* results, Index row_size, const T* bias) {
  const Image<T>& out = p.out;
  for (Index i = 0; i < rows; ++i, results += layout.pitch) {
    T* to = out.at(n, row + i, 0);
    if (out.channel_stride == 1 && 2 * out.channels >= Blocking<T>::W) {
      interleave(results, row_size, bias, p.least, out.channels, out.width, to, out.column_stride);
      continue;
    }
    for (Index o = 0; o < out.channels; ++o, to += out.channel_stride) {
      for (Index j = 0; j < out.width; ++j) {
        const T y = results[o * row_size + j] + bias[o];
        to[j * out.column_stride] = p.least > y ? p.least : y;
      }
    }
  }
}

template <class T>
void run_planes(const TapProduct<T>& p) {
  constexpr Index NR = Blocking<T>::NR;
  const Index depth = p.depth(), outputs = p.out.channels, height = tile_channels<T>(outputs);
  const PlanesTile<T> tile = planes_tile_of<T>(height, depth);
  const PlaneLayout layout = plane_layout(p.grid, p.taps, p.tap_count, p.source.channels);
  const Scratch offsets(bytes_for<Index>(depth));
  plane_offsets(layout, p.taps, p.tap_count, p.source.channels, offsets.as<Index>());
  const Scratch weights(bytes_for<T>(round_up(outputs, height) * depth));
  pack_plane_weights(p, height, weights.as<T>());
  const Index filled = round_up(outputs, Blocking<T>::W);
  const Scratch bias(bytes_for<T>(filled));
  p.copy_bias(filled, bias.as<T>());

  // An odd number of tiles, so that the rows do not map to one cache set.
  const Index row_size = round_up(layout.positions(), 2 * NR) + NR;
  parallel_for(p.grid.images * layout.bands, 1, [&](Index first, Index last) {
    const Scratch planes(bytes_for<T>(plane_room<T>(layout, p.source.channels)));
    const Scratch results(bytes_for<T>(larger(filled, round_up(outputs, height)) * row_size));
    for (Index task = first; task < last; ++task) {
      const Index n = task / layout.bands, row = task % layout.bands * layout.rows;
      const Index rows = smaller(layout.rows, p.grid.rows - row);
      copy_planes(p.source, layout, n, row, rows, planes.as<T>());
      for (Index o = 0; o < outputs; o += height) {
        for (Index element = 0; element < rows * layout.pitch; element += NR) {
          tile(depth, offsets.as<Index>(), weights.as<T>() + o * depth, planes.as<T>() + element,
               results.as<T>() + o * row_size + element, row_size);
        }
      }
      write_band(p, layout, n, row, rows, results.as<const T>(), row_size, bias.as<const T>());
    }
  });
}

// Measured costs. kPlaneCost is the cost, in multiply-adds, of copying an element into or from a
// plane. A tile of fewer than kLeastSums output channels costs as much as one of kLeastSums,
// because its accumulators are too few to hide latency.
constexpr double kPlaneCost = 16;
constexpr Index kLeastSums = 4;

template <class T>
double planes_cost(const TapProduct<T>& p) {
  if (p.grid.step.h != 1 || p.grid.step.w != 1 || p.tap_count == 0) return kNever;
  const Index outputs = p.out.channels, height = tile_channels<T>(outputs);
  const PlaneLayout layout = plane_layout(p.grid, p.taps, p.tap_count, p.source.channels);
  const Index sums = ceil_div(outputs, height) * larger(height, kLeastSums);
  const Index copied = p.source.channels * layout.plane_size + outputs * layout.positions();
  return double(p.grid.images * layout.bands) *
         (double(layout.positions() * sums * p.depth()) + kPlaneCost * double(copied));
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
