// The pass that writes an image's output; see window.h. Pieces of rows go through buffers that stay
// in L1: they are split into planes, transformed stage by stage, and written in out's layout.
// Pixels that need no stage (copies, mirrors, one layout) go directly from source to out.
#include "window.h"

#include "convert.h"
#include "core/scratch.h"
#include "emit_planes.h"
#include "planes.h"
#include "steps.h"

namespace needle::data::NEEDLE_ISA {
namespace {

constexpr Index kPiece = 1024;  // pixels of a row that pass through the buffers at once

void normalize(const float* in, float* out, Index n, float mean, float std) {
  for (Index i = 0; i < n; ++i) out[i] = (in[i] - mean) / std;
}

// ---- a piece of a row in the buffers ----

struct Planes {
  void* data;
  Index stride;  // from one channel to the next
  Element type;

  template <class T>
  [[gnu::always_inline]] T* plane(Index c) const {
    return static_cast<T*>(data) + c * stride;
  }
};

// Converts bytes to floats, with the normalisation that follows if there is one.
void convert(const Planes& in, const Planes& out, Index channels, Index n, StageKind kind,
             const float* normalization) {
  for (Index c = 0; c < channels; ++c) {
    with_formula(kind, normalization, channels, c, [&](auto formula) {
      convert_run<false>(in.plane<std::uint8_t>(c), out.plane<float>(c), n, formula);
    });
  }
}

template <class T>
void mix(const Planes& in, const Planes& out, Index channels, Index n, const float* m) {
  const auto image = [&](const Planes& planes) {
    return Image<T>{planes.plane<T>(0), 1, n, channels, 0, 1, planes.stride};
  };
  colour(image(in), image(out), m);
}

// Returns the number of stages, including stage i, that are combined with stage i.
int together(const Emission& e, int i) {
  const StageKind kind = e.stages[i].kind;
  const bool converts = kind == StageKind::kScale || kind == StageKind::kCast;
  return converts && i + 1 < e.stage_count && e.stages[i + 1].kind == StageKind::kNormalize ? 2 : 1;
}

// Runs stage i and those that it is combined with.
void run_stage(const Emission& e, int i, const Planes& in, const Planes& out, Index n) {
  const Stage& stage = e.stages[i];
  if (stage.kind == StageKind::kColour) {
    in.type == Element::kByte ? mix<std::uint8_t>(in, out, e.channels, n, stage.numbers)
                              : mix<float>(in, out, e.channels, n, stage.numbers);
  } else if (stage.kind == StageKind::kNormalize) {
    for (Index c = 0; c < e.channels; ++c) {
      normalize(in.plane<float>(c), out.plane<float>(c), n, stage.numbers[c],
                stage.numbers[e.channels + c]);
    }
  } else {
    const bool both = together(e, i) == 2;
    convert(in, out, e.channels, n, stage.kind, both ? e.stages[i + 1].numbers : nullptr);
  }
}

struct Buffers {
  std::uint8_t* bytes;  // one plane of kPiece per channel
  float* floats;
};

template <class T>
[[gnu::always_inline]] inline T* buffer_of(const Buffers& buffers) {
  if constexpr (sizeof(T) == 1) return buffers.bytes;
  if constexpr (sizeof(T) == 4) return buffers.floats;
}

template <class T>
void store(const Emission& e, const Planes& planes, T* out, Index n) {
  join_pixels(planes.plane<T>(0), planes.stride, e.channels, n, out, e.out_column_stride,
              e.out_channel_stride);
}

// Transforms n pixels from `source` to `out`; both point to the first of them.
template <class T, class U>
void emit_piece(const Emission& e, const T* source, U* out, Index n, const Buffers& buffers) {
  const Planes target{out, e.out_channel_stride, e.out_type};
  const bool direct = e.out_column_stride == 1;  // the last stage writes out's own planes
  Planes now{const_cast<T*>(source), e.channel_stride, e.source_type};
  if (e.column_stride != 1) {
    now = {buffer_of<T>(buffers), kPiece, e.source_type};
    if (e.stage_count == 0 && direct) now = target;
    split_pixels(source, e.column_stride, e.channel_stride, e.channels, n, now.plane<T>(0),
                 now.stride);
  }
  for (int i = 0; i < e.stage_count;) {
    const bool stays_bytes = now.type == Element::kByte && e.stages[i].kind == StageKind::kColour;
    Planes next{buffers.floats, kPiece, Element::kFloat};
    if (stays_bytes) next = {buffers.bytes, kPiece, Element::kByte};
    const int done = i + together(e, i);
    if (direct && done == e.stage_count) next = target;
    run_stage(e, i, now, next, n);
    i = done;
    now = next;
  }
  if (now.data != target.data) store(e, now, out, n);
}

// Returns true if the output's pixels are contiguous, and those of the source are contiguous but
// `column_stride` apart (negative if mirrored).
bool have_pixels(const Emission& e, Index column_stride) {
  return e.channel_stride == 1 && e.out_channel_stride == 1 && e.out_column_stride == e.channels &&
         e.column_stride == column_stride;
}

template <class T>
void copy_row(const Emission& e, const T* source, T* out, Index n) {
  if (have_pixels(e, -e.channels)) return mirror_pixels(source, e.channels, n, out);
  if (have_pixels(e, e.channels)) {
    std::memcpy(out, source, n * e.channels * sizeof(T));
    return;
  }
  for (Index c = 0; c < e.channels; ++c) {
    std::memcpy(out + c * e.out_channel_stride, source + c * e.channel_stride, n * sizeof(T));
  }
}

bool is_copy(const Emission& e) {
  return e.stage_count == 0 && (have_pixels(e, e.channels) || have_pixels(e, -e.channels) ||
                                (e.column_stride == 1 && e.out_column_stride == 1));
}

// Returns true if the only stage is a colour stage and pixels have the same layout in `out` and
// source.
bool is_colour(const Emission& e) {
  return have_pixels(e, e.channels) && e.stage_count == 1 && e.stages[0].kind == StageKind::kColour;
}

template <class T, class U>
void emit_inside(const Emission& e) {
  const T* source = static_cast<const T*>(e.data);
  const Index n = e.inside.width();
  U* out = static_cast<U*>(e.out) + e.inside.top * e.out_row_stride +
           e.inside.left * e.out_column_stride;
  if constexpr (sizeof(T) == sizeof(U)) {
    if (is_copy(e)) {
      for (Index y = 0; y < e.inside.height(); ++y) {
        copy_row(e, source + y * e.row_stride, out + y * e.out_row_stride, n);
      }
      return;
    }
    if (is_colour(e)) {
      const Image<T> in{const_cast<T*>(source), e.inside.height(), n, e.channels,
                        e.row_stride,           e.channels,        1};
      colour(in, {out, in.height, n, e.channels, e.out_row_stride, e.channels, 1},
             e.stages[0].numbers);
      return;
    }
  }
  const Index plane = e.channels * kPiece;
  const ThreadScratch scratch(plane * (sizeof(std::uint8_t) + sizeof(float)));
  const Buffers buffers{reinterpret_cast<std::uint8_t*>(scratch.as<float>() + plane),
                        scratch.as<float>()};
  for (Index y = 0; y < e.inside.height(); ++y) {
    for (Index x = 0; x < n; x += kPiece) {
      emit_piece(e, source + y * e.row_stride + x * e.column_stride,
                 out + y * e.out_row_stride + x * e.out_column_stride,
                 n - x < kPiece ? n - x : kPiece, buffers);
    }
  }
}

// ---- outside of the source ----

template <class U>
void fill(const Emission& e, const Rectangle& where, const float* values) {
  if (where.empty()) return;
  const bool pixels_outermost = e.out_channel_stride == 1 && e.channels <= 4;
  for (Index y = where.top; y < where.bottom; ++y) {
    U* row = static_cast<U*>(e.out) + y * e.out_row_stride;
    if (pixels_outermost) {
      for (Index x = where.left; x < where.right; ++x) {
        U* pixel = row + x * e.out_column_stride;
        for (Index c = 0; c < e.channels; ++c) pixel[c] = static_cast<U>(values[c]);
      }
      continue;
    }
    for (Index c = 0; c < e.channels; ++c) {
      const U value = static_cast<U>(values[c]);
      U* to = row + c * e.out_channel_stride;
      for (Index x = where.left; x < where.right; ++x) to[x * e.out_column_stride] = value;
    }
  }
}

template <class U>
void emit_as(const Emission& e) {
  const Rectangle& in = e.inside;
  if (in.empty()) {
    fill<U>(e, {0, 0, e.height, e.width}, e.fill);
  } else if (sizeof(U) == 4 && are_planes_of_bytes(e)) {
    emit_planes(e);
  } else {
    fill<U>(e, {0, 0, in.top, e.width}, e.fill);
    fill<U>(e, {in.top, 0, in.bottom, in.left}, e.fill);
    fill<U>(e, {in.top, in.right, in.bottom, e.width}, e.fill);
    fill<U>(e, {in.bottom, 0, e.height, e.width}, e.fill);
    if (e.source_type == Element::kFloat) {
      if constexpr (sizeof(U) == 4) emit_inside<float, U>(e);  // floats never become bytes
    } else {
      emit_inside<std::uint8_t, U>(e);
    }
  }
  for (int i = 0; i < e.erased_count; ++i) fill<U>(e, e.erased[i].where, e.erased[i].values);
}

}  // namespace

void emit(const Emission& e) {
  e.out_type == Element::kByte ? emit_as<std::uint8_t>(e) : emit_as<float>(e);
}

}  // namespace needle::data::NEEDLE_ISA
