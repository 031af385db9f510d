// One image between two passes over memory: which window of which pixels it shows, and what is
// still to be done to them. Cropping, mirroring and erasing change these few numbers alone.
#pragma once

#include <cstdint>

#include "data/window.h"

namespace needle::data {

inline constexpr int kMaxPending = 12;  // stages, and erased rectangles, that wait for one pass

// A value put somewhere after `stages` of the pending stages; the others still change it.
struct Filling {
  double value = 0;
  int stages = 0;
};

// One image on its way: `inside` of its height x width is what lies at `data` (its first pixel),
// the rest is `outside`; on the way out come the stages, and the erased rectangles on top.
struct Canvas {
  const void* data;
  Element source_type, type;
  std::int64_t row_stride, column_stride, channel_stride;
  std::int64_t height, width;
  Rectangle inside;
  Filling outside;
  int stage_count = 0, erased_count = 0, colour_count = 0;
  Stage stages[kMaxPending];
  struct {
    Rectangle where;
    Filling filling;
  } erased[kMaxPending];
  float colours[kMaxPending][12];

  bool whole() const { return inside.height() == height && inside.width() == width; }
  bool plain() const { return whole() && stage_count == 0 && erased_count == 0; }
};

Rectangle intersection(const Rectangle& a, const Rectangle& b);

// The window, which may reach outside, becomes the canvas.
void take_window(Canvas& canvas, const Rectangle& window);

// Left and right, or top and bottom, change places.
void mirror(Canvas& canvas, bool horizontally);

// The element `count` elements after data.
const char* offset(const void* data, Element type, std::int64_t count);

inline std::size_t size_of(Element type) { return type == Element::kByte ? 1 : 4; }

}  // namespace needle::data
