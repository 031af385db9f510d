// One image between two passes over memory: a window of the source's pixels, and pending stages.
// Cropping, mirroring and erasing change only these numbers.
#pragma once

#include <cstdint>

#include "data/window.h"

namespace needle::data {

inline constexpr int kMaxPending =
    12;  // pending stages, and pending erased rectangles, of one pass

// A value that is set after the first `stages` of the pending stages; the remaining ones still
// change it.
struct Filling {
  double value = 0;
  int stages = 0;
};

// `inside` is the part of height x width that `data` (its first pixel) holds; the rest is
// `outside`. The stages, and then the erased rectangles, are applied when the canvas is written.
struct Canvas : Window {
  Element type;
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

// Reduces the canvas to the window, which may extend beyond it.
void take_window(Canvas& canvas, const Rectangle& window);

// Mirrors left and right, or top and bottom.
void mirror(Canvas& canvas, bool horizontally);

// Returns the address `count` elements after data.
const char* offset(const void* data, Element type, std::int64_t count);

inline std::size_t size_of(Element type) { return type == Element::kByte ? 1 : 4; }

}  // namespace needle::data
