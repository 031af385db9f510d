// The parameters of one image, step by step, checked: what run.cc and lower.cc both start from.
// Errors name the step, the rule, the value and the image.
#pragma once

#include <cstdint>
#include <string>

#include "data/window.h"

namespace needle::data {

struct Parameters {
  const double* p;  // of this step and image
  std::int64_t sample;
  std::int64_t height, width;  // of the image that the step is given

  [[noreturn]] void refuse_here(const char* step, const std::string& rule) const;
  std::int64_t whole(const char* step, double value) const;

  struct Place {
    std::int64_t top, left;
  };
  Place crop() const { return {whole("crop", p[0]), whole("crop", p[1])}; }
  bool flips(int axis) const;  // 0: left and right change places, 1: top and bottom
  Rectangle erased() const;    // inside the image; may be empty
  // Whether the 3x4 matrix, as float32, changes anything.
  bool colour(float matrix[12]) const;
  Rectangle resized() const;  // the box that a resize takes: it has pixels, all of them there
  void affine(double matrix[6]) const;
};

// For a result that is not of the size that out takes.
[[noreturn]] void refuse_size(std::int64_t height, std::int64_t width, const std::int64_t wanted[2],
                              std::int64_t sample);

}  // namespace needle::data
