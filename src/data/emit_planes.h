// Implements the most frequent pass. It converts bytes to floats, normalises them on request, and
// writes planes (C, H, W) with the margins of a crop. A plane is written from its first row to its
// last, margins included, without a function call per row. window.cc includes this file, and its
// general pass computes the same.
#pragma once

#include "convert.h"
#include "core/not_implemented.h"
#include "core/scratch.h"
#include "planes.h"
#include "window.h"

namespace needle::data::NEEDLE_ISA {
namespace {

constexpr Index kPlaneBytes = 4096;  // bytes of a plane that are deinterleaved at once

struct PlaneRows {  // rows of bytes of one channel, and their destination
  const std::uint8_t* in;
  Index in_stride;
  float* out;
  Index out_stride;
  Index rows, left, inside, width;
  float fill;
};

bool are_planes_of_bytes(const Emission& e) {
  if (e.source_type != Element::kByte || e.out_column_stride != 1) return false;
  if (e.stage_count < 1 || e.stage_count > 2 || e.inside.width() > kPlaneBytes) return false;
  const StageKind first = e.stages[0].kind;
  return (first == StageKind::kScale || first == StageKind::kCast) &&
         (e.stage_count == 1 || e.stages[1].kind == StageKind::kNormalize);
}

// Writes the left and right margins of a row. The whole vectors that it stores reach into the
// middle, so the middle must be written afterwards.
[[gnu::always_inline]] inline void fill_margins(float* out, Index left, Index right, Index width,
                                                float value) {
  if (width < kLanes) {
    for (Index i = 0; i < width; ++i) out[i] = value;
    return;
  }
  const Floats values = value - Floats{};
  const auto fill_at = [&](Index i) __attribute__((always_inline)) {
    std::memcpy(out + i, &values, sizeof values);
  };
  for (Index i = 0; i < left; i += kLanes) fill_at(i + kLanes <= width ? i : width - kLanes);
  for (Index i = width; i > width - right; i -= kLanes) fill_at(i >= kLanes ? i - kLanes : 0);
}

void fill_rows(float* out, Index stride, Index rows, Index width, float value) {
  for (Index y = 0; y < rows; ++y) {
    for (Index x = 0; x < width; ++x) out[y * stride + x] = value;
  }
}

template <bool kMirrored, class F>
void convert_rows(const PlaneRows& p, F f) {
  /// BEGIN SOLUTION [augment-rows]
  const Index right = p.width - p.left - p.inside;
  for (Index y = 0; y < p.rows; ++y) {
    float* out = p.out + y * p.out_stride;
    fill_margins(out, p.left, right, p.width, p.fill);
    convert_run<kMirrored>(p.in + y * p.in_stride, out + p.left, p.inside, f);
  }
  /// END SOLUTION
}

template <bool kMirrored>
void convert_plane(const Emission& e, const PlaneRows& p, Index c) {
  const float* numbers = e.stage_count == 1 ? nullptr : e.stages[1].numbers;
  with_formula(e.stages[0].kind, numbers, e.channels, c,
               [&](auto formula) { convert_rows<kMirrored>(p, formula); });
}

// Returns true if emit_small_image can compute the output: it is small, its rows are contiguous,
// and its margins correspond to a byte.
bool is_small_image_of_bytes(const Emission& e) {
  const bool whole = e.inside.width() == e.width && e.inside.height() == e.height;
  return e.height * e.width <= kPlaneBytes && e.out_row_stride == e.width &&
         (whole || e.fill_byte >= 0);
}

// Copies the image's window with its margins to planes of bytes, and converts each plane as one
// run, because the rows of a small image are too short for efficient loops.
void emit_small_image(const Emission& e) {
  const Index plane = e.height * e.width;
  const ThreadScratch scratch(e.channels * kPlaneBytes);
  auto* planes = scratch.as<std::uint8_t>();
  const Rectangle& inside = e.inside;
  if (inside.height() * inside.width() < plane) {
    std::memset(planes, e.fill_byte, e.channels * plane);
  }
  const auto* source = static_cast<const std::uint8_t*>(e.data);
  for (Index y = 0; y < inside.height(); ++y) {
    split_pixels(source + y * e.row_stride, e.column_stride, e.channel_stride, e.channels,
                 inside.width(), planes + (inside.top + y) * e.width + inside.left, plane);
  }
  for (Index c = 0; c < e.channels; ++c) {
    float* out = static_cast<float*>(e.out) + c * e.out_channel_stride;
    convert_plane<false>(e, {planes + c * plane, plane, out, plane, 1, 0, plane, plane, 0}, c);
  }
}

// Writes `rows` rows of each plane, from row y on. `in` points to the first of them; its channels
// are `channel_stride` apart.
void convert_planes(const Emission& e, const std::uint8_t* in, Index in_stride,
                    Index channel_stride, bool mirrored, Index y, Index rows) {
  const Rectangle& inside = e.inside;
  for (Index c = 0; c < e.channels; ++c) {
    float* out = static_cast<float*>(e.out) + c * e.out_channel_stride + y * e.out_row_stride;
    const PlaneRows p{in + c * channel_stride, in_stride, out,
                      e.out_row_stride,        rows,      inside.left,
                      inside.width(),          e.width,   e.fill[c]};
    mirrored ? convert_plane<true>(e, p, c) : convert_plane<false>(e, p, c);
  }
}

void emit_planes(const Emission& e) {
  if (is_small_image_of_bytes(e)) return emit_small_image(e);
  const auto* source = static_cast<const std::uint8_t*>(e.data);
  const Rectangle& inside = e.inside;
  for (Index c = 0; c < e.channels; ++c) {
    float* plane = static_cast<float*>(e.out) + c * e.out_channel_stride;
    fill_rows(plane, e.out_row_stride, inside.top, e.width, e.fill[c]);
    fill_rows(plane + inside.bottom * e.out_row_stride, e.out_row_stride, e.height - inside.bottom,
              e.width, e.fill[c]);
  }
  if (e.column_stride == 1 || e.column_stride == -1) {
    convert_planes(e, source, e.row_stride, e.channel_stride, e.column_stride < 0, inside.top,
                   inside.height());
    return;
  }
  const Index n = inside.width(), together = kPlaneBytes / n;
  const ThreadScratch scratch(e.channels * kPlaneBytes);
  auto* planes = scratch.as<std::uint8_t>();
  for (Index y = 0; y < inside.height(); y += together) {
    const Index rows = inside.height() - y < together ? inside.height() - y : together;
    for (Index i = 0; i < rows; ++i) {
      split_pixels(source + (y + i) * e.row_stride, e.column_stride, e.channel_stride, e.channels,
                   n, planes + i * n, kPlaneBytes);
    }
    convert_planes(e, planes, n, kPlaneBytes, false, inside.top + y, rows);
  }
}

}  // namespace
}  // namespace needle::data::NEEDLE_ISA
