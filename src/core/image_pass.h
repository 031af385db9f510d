// Describes the augmentation of a batch on a device as a list of passes. Each pass is one launch,
// whose kernel computes the source position of every output pixel. src/data lowers a program of
// steps to passes; src/cuda runs them.
#pragma once

#include <cstdint>
#include <vector>

namespace needle {

enum class PassStep : std::uint8_t {
  kWindow,        // the window of the previous image, mirrored or not; `fill` outside
  kErase,         // `fill` inside a rectangle
  kColourBytes,   // a 3x4 matrix on bytes
  kColourFloats,  // a 3x4 matrix on floats in 0..1
  kScale,         // x / 255
  kNormalize,     // (x - mean) / deviation
};

enum class Resampling : std::uint8_t {
  kNone,
  kNearest,   // resize by tables of positions
  kBilinear,  // resize by tables of weights
  kAffineNearest,
  kAffineBilinear,
};

inline constexpr int kMaxPassSteps = 32;

struct ImagePass {
  struct Step {
    PassStep kind;
    std::int32_t at;  // word offset of its numbers in the record, for kNormalize in all words
    float fill;
  };
  Step steps[kMaxPassSteps];
  int before = 0, count = 0;  // steps [0, before) precede the resampling, the rest follow it
  Resampling resampling = Resampling::kNone;
  std::int32_t resampling_at = 0;  // in the record
  float resampling_fill = 0;
  bool floats_in = false, floats_between = false, floats_out = false;  // else bytes
  std::int32_t channels = 0, height = 0, width = 0;                    // of the output
  std::int64_t row_stride = 0, column_stride = 0, channel_stride = 0;  // of the output, in elements
  std::int32_t record_words =
      0;  // record size of one image: a SourceRecord, then the numbers of steps and resampling
  std::int64_t records = 0;  // the word offset of the first image's record
};

struct ImageBatch {
  std::vector<ImagePass> passes;  // the first reads the images, each later one the result before it
  std::vector<std::uint32_t> words;  // records, tables, and numbers that all images share
  std::int64_t images = 0;
};

// ---- what records hold; each is a whole number of eight bytes ----

struct SourceRecord {
  std::int64_t offset;  // of the first pixel, in elements
  std::int32_t row_stride, column_stride, channel_stride, unused;
};

// Inside the rectangle, pixel (y, x) is a copy of pixel (row_sign * y + row, column_sign * x +
// column) of the previous image.
struct WindowRecord {
  std::int32_t top, left, bottom, right;
  std::int32_t row_sign, row, column_sign, column;
};

struct EraseRecord {
  std::int32_t top, left, bottom, right;
};

struct ColourRecord {
  float matrix[12];
  std::int32_t changes, unused;  // 0: the image stays as it is and is not clipped
};

// Resizes a box of the previous image; (top, left) is its first pixel. `down` and `across` are the
// word offsets of the tables of rows and columns. A table entry has down_stride or across_stride
// words: the first position and, for kBilinear, the number of weights and then the weights (int32
// for bytes, float32 for floats).
struct ResizeRecord {
  std::int32_t top, left, down, down_stride, across, across_stride;
};

struct AffineRecord {
  double matrix[6];
  std::int32_t height, width;  // of the image before
};

}  // namespace needle
