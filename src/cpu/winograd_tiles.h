// The tiles of an image that Winograd's algorithm works on, and their transformation; the
// convolution (winograd.h) and its weight gradient (winograd_weight_grad.h) share them.
#pragma once

#include "conv_taps.h"
#include "winograd_transforms.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// Measured costs, in multiply-adds at full speed: of transforming an element of a tile, and of
// transforming a weight to all frequencies or back. They decide between this method and the direct
// sum.
constexpr Index kTransformCost = 8, kWeightCost = 864, kFewestChannels = 8;

// The number of products in a partial sum of a frequency. The output transform multiplies the
// rounding errors of these sums by about 4.5, so they are shorter than in other products.
constexpr Index kFrequencyPartial = 20;

// Computes a tile of a product at one frequency, R rows of V vectors, and stores it in `out`, or
// adds it there. Element (row, p) of A is a[row * row_step + p * step]; B has k rows, `b_stride`
// apart. The tile is stored as a whole: `out` has room for rows beyond the product's last one,
// whose values are never read.
template <class T, int R, int V, class RowStep, class Step>
[[gnu::noinline]] void frequency_tile(Index k, const T* a, RowStep row_step, Step step, const T* b,
                                      Index b_stride, T* out, Index out_stride, bool add) {
  for (Index i = 0; i < R; ++i) __builtin_prefetch(out + i * out_stride, 1);
  Vector<T> acc[R][V] = {}, total[R][V];
  asm("" : "=m"(total));  // silences a warning: end_partial writes it before it is read
  for (Index left = k, n = 0; left > 0; left -= n) {
    if (left < k) end_partial<T, R, V>(acc, total, left + kFrequencyPartial == k);
    n = partial_of(left, kFrequencyPartial);
    for (Index p = 0; p < n; ++p, a += step, b += b_stride) {
      outer_product<T, R>(acc, b, [a, row_step](int i) { return a[i * row_step]; });
    }
  }
  if (partial_of(k, kFrequencyPartial) < k) add_total<T, R, V>(acc, total);
#pragma GCC unroll 16
  for (int i = 0; i < R; ++i, out += out_stride) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      T* to = out + v * Blocking<T>::W;
      store<T>(to, add ? load(to) + acc[i][v] : acc[i][v]);
    }
  }
}

// Returns true if the taps are those of a 3 x 3 kernel without gaps and of stride 1, in any order.
[[maybe_unused]] bool is_three_by_three(const Tap* taps, Index count, const Grid& grid) {
  if (count != 9 || grid.step.h != 1 || grid.step.w != 1) return false;
  Index top = taps[0].dy, left = taps[0].dx, seen = 0;
  for (Index t = 1; t < 9; ++t) top = smaller(top, taps[t].dy), left = smaller(left, taps[t].dx);
  for (Index t = 0; t < 9; ++t) {
    const Index dy = taps[t].dy - top, dx = taps[t].dx - left;
    if (dy > 2 || dx > 2) return false;
    seen |= Index{1} << (dy * 3 + dx);
  }
  return seen == 0x1ff;
}

// Returns the topmost and leftmost tap of the nine.
[[maybe_unused]] Pair corner_of(const Tap* taps) {
  Pair corner{taps[0].dy, taps[0].dx};
  for (Index t = 1; t < 9; ++t) {
    corner = {smaller(corner.h, taps[t].dy), smaller(corner.w, taps[t].dx)};
  }
  return corner;
}

// Rounds `elements` up to an odd number of cache lines, so that rows at this distance do not map
// to a few cache sets.
constexpr Index odd_lines(Index elements) { return round_up(elements, 32) + 16; }

template <class T>
struct TileSource {
  Image<const T> image;
  Index top, left;  // of the input of a tile, from its first pixel in the grid
  Index images, tile_rows, tile_columns;
  Index filled;    // channels of a transformed tile; those beyond the image's are zeros
  Index size;      // from one transformed tile to the next
  Index step;      // from one frequency to the next
  const T* zeros;  // for pixels outside the image: one per channel, plus one vector

  Index tiles() const { return images * tile_rows * tile_columns; }
};

// Describes the tiles of an image. `block` tiles are transformed at a time, with their channels
// padded to a multiple of `width`.
template <class T>
TileSource<T> tile_source(const Image<const T>& image, const Grid& grid, const Pair& corner,
                          Index block, Index width, const T* zeros) {
  const Index filled = round_up(image.channels, width);
  const Index size = filled < 128 ? filled : odd_lines(filled);
  return {image,
          corner.h,
          corner.w,
          grid.images,
          ceil_div(grid.rows, kTileSide),
          ceil_div(grid.columns, kTileSide),
          filled,
          size,
          odd_lines(block * size),
          zeros};
}

struct TileAt {
  Index n, row, column;  // of its first pixel in the grid
};

template <class T>
TileAt tile_at(const TileSource<T>& source, Index tile) {
  const Index row = tile / source.tile_columns;
  return {row / source.tile_rows, row % source.tile_rows * kTileSide,
          tile % source.tile_columns * kTileSide};
}

// Points `pixels` at the input pixels of a tile or, outside the image, at zeros.
template <class T, int kSide>
void point_at_pixels(const TileSource<T>& source, const TileAt& tile, const T** pixels) {
  const Image<const T>& image = source.image;
  for (Index i = 0; i < kSide; ++i) {
    for (Index j = 0; j < kSide; ++j) {
      const Index y = tile.row + source.top + i, x = tile.column + source.left + j;
      const bool inside = y >= 0 && y < image.height && x >= 0 && x < image.width;
      *pixels++ = inside ? image.at(tile.n, y, x) : source.zeros;
    }
  }
}

// Copies channels [c, c + W) of a tile that has fewer channels, or channels that are not
// contiguous.
template <class T, int kPixels>
void copy_pixels(const TileSource<T>& source, const T* const* pixels, Index c, T* copies) {
  const Index stride = source.image.channel_stride, n = larger(0, source.image.channels - c);
  for (int p = 0; p < kPixels; ++p) {
    const bool copied = pixels[p] != source.zeros && n > 0;
    store<T>(copies + p * Blocking<T>::W,
             load_part(pixels[p] + (copied ? c * stride : 0), copied ? stride : 1, n));
  }
}

template <class T, int kSide, void (*kStep)(const Vector<T> (&)[kSide], Vector<T> (&)[6])>
[[gnu::noinline]] void transform_tile(const T* const* pixels, Index offset, Index step, T* to) {
  both_ways<T, kSide, 6, kStep>(
      [&](int i, int j) { return load(pixels[i * kSide + j] + offset); },
      [&](int i, int j, const Vector<T>& v) { store<T>(to + (i * kSeenSide + j) * step, v); });
}

// Transforms a tile whose pixels lie inside the image, from `corner` on.
template <class T, int kSide, void (*kStep)(const Vector<T> (&)[kSide], Vector<T> (&)[6])>
[[gnu::noinline]] void transform_inner_tile(const T* corner, Index row_stride, Index column_stride,
                                            Index step, T* to) {
  both_ways<T, kSide, 6, kStep>(
      [&](int i, int j) { return load(corner + i * row_stride + j * column_stride); },
      [&](int i, int j, const Vector<T>& v) { store<T>(to + (i * kSeenSide + j) * step, v); });
}

// Returns the first input pixel of a tile if all of them are inside the image, else null.
template <class T, int kSide>
const T* inner_corner(const TileSource<T>& source, const TileAt& tile) {
  const Image<const T>& image = source.image;
  const Index y = tile.row + source.top, x = tile.column + source.left;
  const bool inside = y >= 0 && x >= 0 && y + kSide <= image.height && x + kSide <= image.width;
  return inside ? image.at(tile.n, y, x) : nullptr;
}

// Transforms tiles [begin, end), kSide pixels high and wide, to all frequencies.
template <class T, int kSide, void (*kStep)(const Vector<T> (&)[kSide], Vector<T> (&)[6])>
void transform_tiles(const TileSource<T>& source, Index begin, Index end, T* to) {
  constexpr Index W = Blocking<T>::W;
  constexpr int kPixels = kSide * kSide;
  const Image<const T>& image = source.image;
  const Index whole = image.channel_stride == 1 ? image.channels / W * W : 0;
  const T* pixels[kPixels];
  T copies[kPixels * W];
  const T* copied[kPixels];
  for (int p = 0; p < kPixels; ++p) copied[p] = copies + p * W;
  for (Index tile = begin; tile < end; ++tile, to += source.size) {
    const TileAt place = tile_at(source, tile);
    const T* corner = inner_corner<T, kSide>(source, place);
    if (corner == nullptr || whole < source.filled) {
      point_at_pixels<T, kSide>(source, place, pixels);
    }
    for (Index c = 0; c < whole; c += W) {
      if (corner != nullptr) {
        transform_inner_tile<T, kSide, kStep>(corner + c, image.row_stride, image.column_stride,
                                              source.step, to + c);
      } else {
        transform_tile<T, kSide, kStep>(pixels, c, source.step, to + c);
      }
    }
    for (Index c = whole; c < source.filled; c += W) {
      copy_pixels<T, kPixels>(source, pixels, c, copies);
      transform_tile<T, kSide, kStep>(copied, 0, source.step, to + c);
    }
  }
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
