// The last pass over an image. A window of a source goes through pointwise stages (colour,
// conversion to float, normalisation) into an output of any layout. Pixels outside of the source,
// and erased rectangles, are filled. program.cc composes the pass; window.cc, compiled per
// instruction set, runs it.
#pragma once

#include <cstdint>

namespace needle::data {

struct Rectangle {  // rows [top, bottom), columns [left, right)
  std::int64_t top, left, bottom, right;

  [[gnu::always_inline]] bool empty() const { return bottom <= top || right <= left; }
  [[gnu::always_inline]] std::int64_t height() const { return bottom - top; }
  [[gnu::always_inline]] std::int64_t width() const { return right - left; }
};

enum class Element : std::uint8_t { kByte, kFloat };

enum class StageKind : std::uint8_t {
  kColour,     // bytes to bytes or floats to floats, by `numbers` (3x4)
  kScale,      // bytes to floats: x / 255
  kCast,       // bytes to floats: x
  kNormalize,  // floats: (x - numbers[c]) / numbers[channels + c]
};

struct Stage {
  StageKind kind;
  const float* numbers;
};

struct Erased {
  Rectangle where;      // inside the output
  const float* values;  // one per channel, in the output's type
};

// A window of height x width pixels, of which the source provides the part `inside`. Strides are in
// elements.
struct Window {
  const void* data;  // the first pixel of the part
  Element source_type;
  std::int64_t row_stride, column_stride, channel_stride;
  Rectangle inside;
  std::int64_t height, width;
};

// One pass over an image. The output is height x width x channels, with its axes in any order in
// memory. Pixels outside of the source become `fill`: one value per channel, in the output's type.
struct Emission : Window {
  std::int64_t channels;
  const float* fill;
  int fill_byte;  // the byte that the stages turn into `fill`; -1 if there is none
  const Stage* stages;
  int stage_count;
  const Erased* erased;
  int erased_count;
  void* out;
  Element out_type;
  std::int64_t out_row_stride, out_column_stride, out_channel_stride;
};

}  // namespace needle::data
