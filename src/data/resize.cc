// Resizes images, by the nearest pixel or bilinearly, with a wider filter if an axis shrinks and
// antialias is set. For each output row, the vertical pass computes one line from the rows that it
// needs (the line stays in the cache), and the horizontal pass computes the output row from that
// line. If only a part of the result is needed, both passes compute only that part.
//
// Bytes use fixed point, so that all backends agree bit for bit; weights have units of 2**-14:
//   line = (sum of weight * byte + 2**6) >> 7        fits 16 bits
//   out  = (sum of weight * line + 2**20) >> 21
// Floats: float32 sums in the order of the taps. Weights: resize_axis.h.
#include <cstring>

#include "core/scratch.h"
#include "resize_axis.h"
#include "resize_passes.h"
#include "steps.h"

namespace needle::data::NEEDLE_ISA {
namespace {

// ---- the source with contiguous pixels ---------------------------------------------------------

template <class T>
struct Rows {
  const T* data;
  Index stride;
  bool mirrored;  // pixels run from the last to the first
};

template <class T>
bool has_neighbours(const Image<T>& image, Index step) {
  return (image.channel_stride == 1 || image.channels == 1) &&
         (image.column_stride == step || image.width == 1);
}

// Returns the number of elements of the copy that `in` needs, or 0 if it has rows of contiguous
// pixels and needs none.
template <class T>
Index packed_size(const Image<T>& in) {
  const bool direct = has_neighbours(in, in.channels) || has_neighbours(in, -in.channels);
  return direct ? 0 : in.height * in.width * in.channels;
}

template <class T>
void pack(const Image<T>& in, T* to) {
  for (Index y = 0; y < in.height; ++y) {
    for (Index c = 0; c < in.channels; ++c) {
      const T* from = in.data + y * in.row_stride + c * in.channel_stride;
      T* row = to + y * in.width * in.channels + c;
      for (Index x = 0; x < in.width; ++x) row[x * in.channels] = from[x * in.column_stride];
    }
  }
}

template <class T>
Rows<T> rows_of(const Image<T>& in, T* room) {
  if (has_neighbours(in, in.channels)) return {in.data, in.row_stride, false};
  if (has_neighbours(in, -in.channels)) {
    return {in.data + (in.width - 1) * in.column_stride, in.row_stride, true};
  }
  pack(in, room);
  return {room, in.width * in.channels, false};
}

// ---- images ------------------------------------------------------------------------------------

template <class T>
struct LineOf {
  using type = float;
};
template <>
struct LineOf<Byte> {
  using type = std::int16_t;
};

// Copies a row of contiguous pixels to its place in `out`.
template <class T>
void spread(const T* row, const Image<T>& out, T* to) {
  if (has_neighbours(out, out.channels)) {
    std::memcpy(to, row, std::size_t(out.width * out.channels) * sizeof(T));
    return;
  }
  for (Index j = 0; j < out.width; ++j) {
    for (Index c = 0; c < out.channels; ++c) {
      to[j * out.column_stride + c * out.channel_stride] = row[j * out.channels + c];
    }
  }
}

// Returns positions [begin, end) of an axis; `begin` is a multiple of eight.
ResizeAxis part_of(const ResizeAxis& axis, Index begin, Index end) {
  ResizeAxis part = axis;
  part.out = end - begin;
  part.first += begin;
  part.count += begin;
  part.weight += begin * axis.taps;
  part.real += begin * axis.taps;
  part.pairs += begin * axis.taps * 2;
  return part;
}

template <class T>
void resize_bilinear(const Image<T>& in, const Image<T>& out, const Scaling& scaling) {
  using Line = typename LineOf<T>::type;
  const Index channels = in.channels;
  const Rectangle& part = scaling.part;
  const Scratch packed(std::size_t(packed_size(in)) * sizeof(T));
  const Rows<T> rows = rows_of(in, packed.as<T>());
  const ResizeAxis& down = resize_axis(in.height, scaling.height, scaling.antialias, false);
  const Index begin = part.left / 8 * 8;
  const ResizeAxis across = part_of(
      resize_axis(in.width, scaling.width, scaling.antialias, rows.mirrored), begin, part.right);

  // Computes only the columns of the line that the part reads, from the lowest position to the
  // highest. Zeros surround them, because missing taps read a value and multiply it by zero.
  const Index last = across.out - 1;
  const Index firsts[2] = {across.first[0], across.first[last]};
  const Index ends[2] = {firsts[0] + across.count[0], firsts[1] + across.count[last]};
  const Index low = firsts[firsts[1] < firsts[0]] * channels;  // mirrored ones decrease
  const Index high = ends[ends[1] > ends[0]] * channels;
  const Index slack = (across.taps * channels + 31) / 16 * 16;
  const Scratch room(std::size_t(in.width * channels + 2 * slack) * sizeof(Line));
  Line* const line = room.as<Line>() + slack;
  std::memset(line + low - slack, 0, std::size_t(slack) * sizeof(Line));
  std::memset(line + high, 0, std::size_t(slack) * sizeof(Line));
  const bool direct = begin == part.left && has_neighbours(out, channels);
  const Scratch row(direct ? 0 : std::size_t(across.out * channels) * sizeof(T));

  for (Index y = 0; y < out.height; ++y) {
    const Index i = part.top + y;
    const VerticalTaps taps{down.count[i], down.weight + i * down.taps, down.real + i * down.taps};
    make_line(rows.data + down.first[i] * rows.stride + low, rows.stride, taps, high - low,
              line + low);
    T* const to = out.data + y * out.row_stride;
    make_row_of(line, across, channels, direct ? to : row.as<T>());
    if (!direct) spread(row.as<T>() + (part.left - begin) * channels, out, to);
  }
}

// kChannels is 0 for any number of channels with any stride.
template <int kChannels, class T>
void nearest_row(const T* from, const Index* places, const Image<T>& out, Index channel_stride,
                 T* to) {
  for (Index j = 0; j < out.width; ++j) {
    const T* const pixel = from + places[j];
    if constexpr (kChannels > 0) {
      std::memcpy(to + j * out.column_stride, pixel, kChannels * sizeof(T));
    } else {
      for (Index c = 0; c < out.channels; ++c) {
        to[j * out.column_stride + c * out.channel_stride] = pixel[c * channel_stride];
      }
    }
  }
}

template <class T>
void resize_nearest(const Image<T>& in, const Image<T>& out, const Scaling& scaling) {
  const Scratch places(std::size_t(out.width) * sizeof(Index));
  Index* const place = places.as<Index>();
  for (Index j = 0; j < out.width; ++j) {
    place[j] = nearest_place(scaling.part.left + j, in.width, scaling.width) * in.column_stride;
  }
  const bool neighbours = in.channel_stride == 1 && out.channel_stride == 1;
  for (Index i = 0; i < out.height; ++i) {
    const Index row = nearest_place(scaling.part.top + i, in.height, scaling.height);
    const T* const from = in.data + row * in.row_stride;
    T* const to = out.data + i * out.row_stride;
    if (in.channels == 1) {
      nearest_row<1>(from, place, out, 0, to);
    } else if (in.channels == 3 && neighbours) {
      nearest_row<3>(from, place, out, 1, to);
    } else {
      nearest_row<0>(from, place, out, in.channel_stride, to);
    }
  }
}

template <class T>
void resize_image(const Image<T>& in, const Image<T>& out, const Scaling& scaling) {
  if (scaling.bilinear) {
    resize_bilinear(in, out, scaling);
  } else {
    resize_nearest(in, out, scaling);
  }
}

}  // namespace

void resize(const Image<Byte>& in, const Image<Byte>& out, const Scaling& scaling) {
  resize_image(in, out, scaling);
}

void resize(const Image<float>& in, const Image<float>& out, const Scaling& scaling) {
  resize_image(in, out, scaling);
}

}  // namespace needle::data::NEEDLE_ISA
