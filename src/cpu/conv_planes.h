// Convolution with few channels, where a vector of channels would be mostly padding: vectors of
// pixels instead. A band of image rows is copied into planes, one a channel, zeros around; pixel
// (i, j) of the grid then is position i * pitch + j, and what it sees through a tap stands at one
// offset from there, for all pixels. So vectors run over the positions, across the ends of rows;
// the few positions between two rows are computed and not used. For steps of one pixel alone.
// Here: the planes, and the product on them (conv2d.cc). conv2d_weight_grad.cc has its own sums.
#pragma once

#include "conv_taps.h"
#include "core/thread_pool.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

struct PlaneLayout {
  Index dy, dx;      // of the topmost and of the leftmost tap
  Index halo;        // rows of a plane beyond those of the band
  Index pitch;       // from one row of a plane to the next
  Index rows;        // of a band; the last one of an image may have fewer
  Index bands;       // in an image
  Index plane_size;  // from one plane to the next

  Index positions() const { return rows * pitch; }
};

constexpr Index kBandPositions = 2048;
constexpr Index kPlaneElements = 1 << 15;  // of all planes of a band

// There has to be a tap.
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

// Room for the planes: a vector or two may reach beyond the last.
template <class T>
Index plane_room(const PlaneLayout& layout, Index channels) {
  return channels * layout.plane_size + 2 * Blocking<T>::NR;
}

// Where, for a position, the value of each (tap, channel) stands.
[[maybe_unused]] void plane_offsets(const PlaneLayout& layout, const Tap* taps, Index count,
                                    Index channels, Index* offsets) {
  for (Index t = 0; t < count; ++t) {
    const Index at = (taps[t].dy - layout.dy) * layout.pitch + taps[t].dx - layout.dx;
    for (Index c = 0; c < channels; ++c) *offsets++ = at + c * layout.plane_size;
  }
}

template <class T>
void clear(T* to, Index n) {
  for (Index e = 0; e < n; ++e) to[e] = T(0);
}

// Columns [0, n) of a row, `stride` apart in memory, side by side.
template <class T>
void copy_columns(const T* from, Index stride, Index n, T* to) {
  if (stride == 1) {
    for (Index e = 0; e < n; ++e) to[e] = from[e];
  } else {
    for (Index e = 0; e < n; ++e) to[e] = from[e * stride];
  }
}

// What the grid's rows [row, row + rows) of image n see.
template <class T>
void copy_planes(const Image<const T>& image, const PlaneLayout& layout, Index n, Index row,
                 Index rows, T* planes) {
  const Index left = smaller(larger(-layout.dx, 0), layout.pitch);  // columns before the image
  const Index right = larger(left, smaller(image.width - layout.dx, layout.pitch));
  for (Index c = 0; c < image.channels; ++c) {
    for (Index i = 0; i < layout.rows + layout.halo; ++i, planes += layout.pitch) {
      const Index y = row + i + layout.dy;
      if (i >= rows + layout.halo || y < 0 || y >= image.height || left == right) {
        clear(planes, layout.pitch);
        continue;
      }
      clear(planes, left);
      copy_columns<T>(image.at(n, y, layout.dx + left) + c * image.channel_stride,
                      image.column_stride, right - left, planes + left);
      clear(planes + right, layout.pitch - right);
    }
  }
  clear(planes, 2 * Blocking<T>::NR);
}

// ---- the product -------------------------------------------------------------------------------

// R output channels of 2 vectors of positions; `weights` as k rows of R.
template <class T, int R>
[[gnu::noinline]] void planes_tile(Index k, const Index* offsets, const T* weights, const T* planes,
                                   T* out, Index row_size) {
  Vector<T> acc[R][2] = {};
  for (Index p = 0; p < k; ++p, weights += R) {
    outer_product<T, R>(acc, planes + offsets[p], [weights](int i) { return weights[i]; });
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i, out += row_size) {
    store<T>(out, acc[i][0]);
    store<T>(out + Blocking<T>::W, acc[i][1]);
  }
}

template <class T>
using PlanesTile = void (*)(Index, const Index*, const T*, const T*, T*, Index);

template <class T, int R = Blocking<T>::MR>
PlanesTile<T> planes_tile_of(Index rows) {
  if constexpr (R > 1) {
    if (rows < R) return planes_tile_of<T, R - 1>(rows);
  }
  return &planes_tile<T, R>;
}

// Output channels of a tile: as even as the fewest tiles allow.
template <class T>
Index tile_channels(Index outputs) {
  return ceil_div(outputs, ceil_div(outputs, Blocking<T>::MR));
}

// Tiles of `height` output channels: each the rows (tap, channel) one after the other.
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

// Rows of results (one an output channel) into the grid's rows [row, row + rows) of image n.
template <class T>
void write_band(const Image<T>& out, const PlaneLayout& layout, Index n, Index row, Index rows,
                const T* results, Index row_size, const T* bias) {
  for (Index i = 0; i < rows; ++i, results += layout.pitch) {
    for (Index o = 0; o < out.channels; ++o) {
      T* to = out.at(n, row + i, 0) + o * out.channel_stride;
      const T* from = results + o * row_size;
      const T add = bias != nullptr ? bias[o] : T(0);
      for (Index j = 0; j < out.width; ++j) to[j * out.column_stride] = from[j] + add;
    }
  }
}

template <class T>
void run_planes(const TapProduct<T>& p) {
  constexpr Index NR = Blocking<T>::NR;
  const Index depth = p.depth(), outputs = p.out.channels, height = tile_channels<T>(outputs);
  const PlanesTile<T> tile = planes_tile_of<T>(height);
  const PlaneLayout layout = plane_layout(p.grid, p.taps, p.tap_count, p.source.channels);
  const Scratch offsets(bytes_for<Index>(depth));
  plane_offsets(layout, p.taps, p.tap_count, p.source.channels, offsets.as<Index>());
  const Scratch weights(bytes_for<T>(round_up(outputs, height) * depth));
  pack_plane_weights(p, height, weights.as<T>());

  // An odd number of tiles, or the rows would meet in one set of the cache.
  const Index row_size = round_up(layout.positions(), 2 * NR) + NR;
  parallel_for(p.grid.images * layout.bands, 1, [&](Index first, Index last) {
    const Scratch planes(bytes_for<T>(plane_room<T>(layout, p.source.channels)));
    const Scratch results(bytes_for<T>(round_up(outputs, height) * row_size));
    for (Index task = first; task < last; ++task) {
      const Index n = task / layout.bands, row = task % layout.bands * layout.rows;
      const Index rows = smaller(layout.rows, p.grid.rows - row);
      copy_planes(p.source, layout, n, row, rows, planes.as<T>());
      for (Index o = 0; o < outputs; o += height) {
        for (Index at = 0; at < rows * layout.pitch; at += NR) {
          tile(depth, offsets.as<Index>(), weights.as<T>() + o * depth, planes.as<T>() + at,
               results.as<T>() + o * row_size + at, row_size);
        }
      }
      write_band(p.out, layout, n, row, rows, results.as<const T>(), row_size, p.bias);
    }
  });
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
