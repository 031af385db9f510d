// A step of an augmentation program in executable form, and the errors of invalid steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/window.h"

namespace needle::data {

enum class Kind { kCrop, kFlip, kResize, kColour, kAffine, kErase, kToFloat, kNormalize, kPermute };

struct StepRow {  // the meaning of a step's name; constants is -1 if the step checks them itself
  const char* name;
  Kind kind;
  int constants, parameters;
  bool geometric;  // uses axes 0 and 1 as height and width
};

struct Instruction {
  const StepRow* row;
  const double* parameters;            // row->parameters is their number per image
  std::int64_t height = 0, width = 0;  // of the output, where the step states them
  double fill = 0;
  bool bilinear = false, antialias = false;
  std::vector<float> numbers = {};  // normalize: means, deviations

  const double* parameters_of(std::int64_t sample) const {
    return parameters + sample * row->parameters;
  }
};

inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;  // of an image between steps

std::string text(double value);
bool is_integer(double value);
[[noreturn]] void refuse(const std::string& step, const std::string& rule);

}  // namespace needle::data
