// Reads and checks the parameters of one step for one image, for run.cc and lower.cc. Errors name
// the step, the rule, the value and the image.
#pragma once

#include <cstdint>
#include <string>

#include "data/window.h"

namespace needle::data {

struct Parameters {
  const double* p;  // of this step and image
  std::int64_t sample;
  std::int64_t height, width;  // of the image that the step receives

  [[noreturn]] void refuse_here(const char* step, const std::string& rule) const;
  std::int64_t whole(const char* step, double value) const;

  struct Place {
    std::int64_t top, left;
  };
  Place crop() const { return {whole("crop", p[0]), whole("crop", p[1])}; }
  bool flips(int axis) const;  // 0: mirrors left and right, 1: top and bottom
  Rectangle erased() const;    // inside the image; may be empty
  // Returns true if the 3x4 matrix, as float32, is not the identity.
  bool colour(float matrix[12]) const;
  Rectangle resized() const;  // the box that is resized: not empty, inside the image
  void affine(double matrix[6]) const;
};

// Throws the Error for a result whose size is not the `wanted` one.
[[noreturn]] void refuse_size(std::int64_t height, std::int64_t width, const std::int64_t wanted[2],
                              std::int64_t sample);

}  // namespace needle::data
