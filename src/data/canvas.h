// An image between two passes over memory: a window of the source's pixels, and the stages that are
// still pending. Cropping, mirroring and erasing change only these numbers.
#pragma once

#include <cstdint>

#include "data/window.h"

namespace needle::data {

inline constexpr int kMaxPending =
    12;  // pending stages, and pending erased rectangles, of one pass

// A fill value that is set after the first `stages` pending stages. The later stages still change
// it.
struct Filling {
  double value = 0;
  int stages = 0;
};

// `data` points to the first pixel of `inside`, the part of height x width that the source
// provides; the rest is `outside`. Writing the canvas applies the stages, and then the erased
// rectangles.
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
