// Images scaled to another size: bilinear, with the filter widened where an axis shrinks and
// antialias is asked for, or nearest. One output row after the other: the vertical pass makes one
// line of the rows it needs (it stays in the cache), the horizontal pass one output row of the
// line.
//
// Bytes are fixed point, so that every backend agrees bit for bit; weights are of 2**14:
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

// ---- the source, with its pixels next to each other --------------------------------------------

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

// Elements of a copy that `in` needs: other layouts than rows of neighbouring pixels.
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

// A row of neighbouring pixels to where `out` wants them.
template <class T>
void spread(const T* row, const Image<T>& out, T* to) {
  for (Index j = 0; j < out.width; ++j) {
    for (Index c = 0; c < out.channels; ++c) {
      to[j * out.column_stride + c * out.channel_stride] = row[j * out.channels + c];
    }
  }
}

template <class T>
void resize_bilinear(const Image<T>& in, const Image<T>& out, bool antialias) {
  using Line = typename LineOf<T>::type;
  const Index count = in.width * in.channels;
  const Scratch packed(std::size_t(packed_size(in)) * sizeof(T));
  const Rows<T> rows = rows_of(in, packed.as<T>());
  const ResizeAxis& down = resize_axis(in.height, out.height, antialias, false);
  const ResizeAxis& across = resize_axis(in.width, out.width, antialias, rows.mirrored);

  // Around the line there are zeros: taps that are not there are read, times a weight of zero.
  const Index slack = (across.taps * in.channels + 31) / 16 * 16;
  const Scratch room(std::size_t(count + 2 * slack) * sizeof(Line));
  Line* const line = room.as<Line>() + slack;
  std::memset(room.as<Line>(), 0, std::size_t(slack) * sizeof(Line));
  std::memset(line + count, 0, std::size_t(slack) * sizeof(Line));
  const bool direct = has_neighbours(out, out.channels);
  const Scratch row(direct ? 0 : std::size_t(out.width * out.channels) * sizeof(T));

  for (Index i = 0; i < out.height; ++i) {
    const VerticalTaps taps{down.count[i], down.weight + i * down.taps, down.real + i * down.taps};
    make_line(rows.data + down.first[i] * rows.stride, rows.stride, taps, count, line);
    T* const to = out.data + i * out.row_stride;
    make_row_of(line, across, in.channels, direct ? to : row.as<T>());
    if (!direct) spread(row.as<T>(), out, to);
  }
}

// kChannels 0: as many as there are, at any distance.
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
void resize_nearest(const Image<T>& in, const Image<T>& out) {
  const Scratch places(std::size_t(out.width) * sizeof(Index));
  Index* const place = places.as<Index>();
  for (Index j = 0; j < out.width; ++j) {
    place[j] = nearest_place(j, in.width, out.width) * in.column_stride;
  }
  const bool neighbours = in.channel_stride == 1 && out.channel_stride == 1;
  for (Index i = 0; i < out.height; ++i) {
    const T* const from = in.data + nearest_place(i, in.height, out.height) * in.row_stride;
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
void resize_image(const Image<T>& in, const Image<T>& out, bool bilinear, bool antialias) {
  if (bilinear) {
    resize_bilinear(in, out, antialias);
  } else {
    resize_nearest(in, out);
  }
}

}  // namespace

void resize(const Image<Byte>& in, const Image<Byte>& out, bool bilinear, bool antialias) {
  resize_image(in, out, bilinear, antialias);
}

void resize(const Image<float>& in, const Image<float>& out, bool bilinear, bool antialias) {
  resize_image(in, out, bilinear, antialias);
}

}  // namespace needle::data::NEEDLE_ISA
