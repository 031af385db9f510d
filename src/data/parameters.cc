#include "parameters.h"

#include <algorithm>
#include <cmath>

#include "canvas.h"
#include "core/check.h"
#include "instruction.h"

namespace needle::data {

void Parameters::refuse_here(const char* step, const std::string& rule) const {
  refuse(step, rule + " (image " + std::to_string(sample) + ")");
}

std::int64_t Parameters::whole(const char* step, double value) const {
  if (!is_integer(value) || std::fabs(value) > static_cast<double>(kMaxElements)) {
    refuse_here(step, "parameters must be whole numbers below 2**31, got " + text(value));
  }
  return static_cast<std::int64_t>(value);
}

bool Parameters::flips(int axis) const {
  if (p[axis] != 0 && p[axis] != 1) {
    refuse_here("flip", "parameters must be 0 or 1, got " + text(p[axis]));
  }
  return p[axis] == 1;
}

Rectangle Parameters::erased() const {
  std::int64_t box[4];
  for (int i = 0; i < 4; ++i) box[i] = whole("erase", p[i]);
  if (box[2] < 0 || box[3] < 0) refuse_here("erase", "height and width must not be negative");
  return intersection({0, 0, height, width}, {box[0], box[1], box[0] + box[2], box[1] + box[3]});
}

bool Parameters::colour(float matrix[12]) const {
  bool changes = false;
  for (int i = 0; i < 12; ++i) {
    matrix[i] = static_cast<float>(p[i]);
    if (!std::isfinite(matrix[i])) {
      refuse_here("colour", "parameters must be finite float32 values");
    }
    changes = changes || matrix[i] != (i % 5 == 0 ? 1.0f : 0.0f);  // 3x4: the diagonal
  }
  return changes;
}

Rectangle Parameters::resized() const {
  std::int64_t b[4];
  for (int i = 0; i < 4; ++i) b[i] = whole("resize", p[i]);
  const bool fits = b[0] >= 0 && b[1] >= 0 && b[2] >= 1 && b[3] >= 1 && b[0] + b[2] <= height &&
                    b[1] + b[3] <= width;
  if (!fits) {
    refuse_here("resize",
                "the box (top, left, height, width) must have pixels and lie inside the image of " +
                    std::to_string(height) + "x" + std::to_string(width) + ", got (" + text(p[0]) +
                    ", " + text(p[1]) + ", " + text(p[2]) + ", " + text(p[3]) + ")");
  }
  return {b[0], b[1], b[0] + b[2], b[1] + b[3]};
}

void Parameters::affine(double matrix[6]) const {
  std::copy_n(p, 6, matrix);
  for (int i = 0; i < 6; ++i) {
    if (!std::isfinite(matrix[i])) refuse_here("affine", "parameters must be finite");
  }
  if (height < 1 || width < 1) refuse_here("affine", "the image has no pixels");
}

void refuse_size(std::int64_t height, std::int64_t width, const std::int64_t wanted[2],
                 std::int64_t sample) {
  raise_error("run_images: out must take an image of height " + std::to_string(height) +
              " and width " + std::to_string(width) + ", got " + std::to_string(wanted[0]) +
              " and " + std::to_string(wanted[1]) + " (image " + std::to_string(sample) + ")");
}

}  // namespace needle::data
