// Augmentation of a batch on a device: a list of passes, one launch each, whose kernel computes for
// every output pixel where it comes from. src/data lowers a program of steps to this; src/cuda runs
// it.
#pragma once

#include <cstdint>
#include <vector>

namespace needle {

enum class PassStep : std::uint8_t {
  kWindow,        // which part of the image before is seen, mirrored or not; `fill` elsewhere
  kErase,         // `fill` in a rectangle
  kColourBytes,   // a 3x4 matrix, of whole numbers 0..255
  kColourFloats,  // of floats 0..1
  kScale,         // x / 255
  kNormalize,     // (x - mean) / deviation
};

enum class Resampling : std::uint8_t {
  kNone,
  kNearest,   // resize, by tables of places
  kBilinear,  // resize, by tables of weights
  kAffineNearest,
  kAffineBilinear,
};

inline constexpr int kMaxPassSteps = 32;

struct ImagePass {
  struct Step {
    PassStep kind;
    std::int32_t at;  // its numbers, in words: of the image's record; of all words for kNormalize
    float fill;
  };
  Step steps[kMaxPassSteps];
  int before = 0, count = 0;  // steps [0, before) come before the resampling, the rest after it
  Resampling resampling = Resampling::kNone;
  std::int32_t resampling_at = 0;  // in the record
  float resampling_fill = 0;
  bool floats_in = false, floats_between = false, floats_out = false;  // else bytes
  std::int32_t channels = 0, height = 0, width = 0;                    // of the output
  std::int64_t row_stride = 0, column_stride = 0, channel_stride = 0;  // of the output, in elements
  std::int32_t record_words =
      0;                     // of an image: a SourceRecord, then what steps and resampling need
  std::int64_t records = 0;  // the word at which the first image's begins
};

struct ImageBatch {
  std::vector<ImagePass> passes;  // the first reads the images, the others the one before, compact
  std::vector<std::uint32_t> words;  // records, tables, numbers that all images share
  std::int64_t images = 0;
};

// ---- what records hold; each is a whole number of eight bytes ----

struct SourceRecord {
  std::int64_t offset;  // of the first pixel, in elements
  std::int32_t row_stride, column_stride, channel_stride, unused;
};

// Pixel (y, x) inside the rectangle is (row_sign * y + row, column_sign * x + column) before it.
struct WindowRecord {
  std::int32_t top, left, bottom, right;
  std::int32_t row_sign, row, column_sign, column;
};

struct EraseRecord {
  std::int32_t top, left, bottom, right;
};

struct ColourRecord {
  float matrix[12];
  std::int32_t changes, unused;  // 0: the image stays as it is, not even clipped
};

// The box of the image before that is scaled. down, across: the words at which an axis's table
// begins; an entry of it, *_stride words, is the first place, then for kBilinear the count of
// weights and the weights: int32 for bytes, float32 for floats.
struct ResizeRecord {
  std::int32_t top, left, down, down_stride, across, across_stride;
};

struct AffineRecord {
  double matrix[6];
  std::int32_t height, width;  // of the image before
};

}  // namespace needle
