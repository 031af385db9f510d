// An image in memory, as the steps of an augmentation program see it. A step reads `in` and writes
// every element of `out`. Both are (height, width, channels), with adjacent channels and with rows
// `row_stride` elements apart. Steps do not depend on Python, batches or threads: program.cc calls
// them, and one thread processes an image.
//
// Integer results are equal to the NumPy definitions (python/needle/data/transforms/) bit for bit,
// so these files are compiled with -ffp-contract=off: a fused multiplication and addition rounds
// once where NumPy rounds twice.
#pragma once

#include <cstdint>

namespace needle::data {

template <class T>  // std::uint8_t or float
struct Image {
  T* data;
  std::int64_t height, width, channels;
  std::int64_t row_stride;      // elements from one row to the next
  std::int64_t column_stride;   // elements from one pixel to the next
  std::int64_t channel_stride;  // 1 except for channel-major sources
};

}  // namespace needle::data
