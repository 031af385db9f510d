// Compiles a program: checks what all images share and converts it to the form that run.cc uses.
#include "program.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace needle::data {

std::string text(double value) {
  std::string shown = std::to_string(value);
  if (is_integer(value)) shown.resize(shown.find('.'));
  return shown;
}

bool is_integer(double value) { return std::isfinite(value) && value == std::floor(value); }

void refuse(const std::string& step, const std::string& rule) {
  raise_error("run_images: " + step + ": " + rule);
}

namespace {

constexpr std::int64_t kMaxSide = 1 << 24;

constexpr StepRow kRows[] = {
    {"crop", Kind::kCrop, 3, 2, true},         {"flip", Kind::kFlip, 0, 2, true},
    {"resize", Kind::kResize, 4, 4, true},     {"colour", Kind::kColour, 0, 12, false},
    {"affine", Kind::kAffine, 4, 6, true},     {"erase", Kind::kErase, 1, 4, true},
    {"to_float", Kind::kToFloat, 0, 0, false}, {"normalize", Kind::kNormalize, -1, 0, false},
    {"permute", Kind::kPermute, 3, 0, false},
};

std::int64_t side(const char* step, double value) {
  if (!is_integer(value) || value < 1 || value > static_cast<double>(kMaxSide)) {
    refuse(step, "output sizes must be whole numbers from 1 to 2**24, got " + text(value));
  }
  return static_cast<std::int64_t>(value);
}

double checked_fill(const char* step, double value, Element type) {
  const bool fits = type == Element::kFloat ? std::isfinite(static_cast<float>(value))
                                            : is_integer(value) && value >= 0 && value <= 255;
  if (!fits) {
    refuse(step, std::string("fill must be ") +
                     (type == Element::kByte ? "a whole number in [0, 255] for bytes, got "
                                             : "finite, got ") +
                     text(value));
  }
  return value;
}

const StepRow& row_of(const StepCall& call) {
  std::string known;
  for (const StepRow& row : kRows) {
    if (call.name == row.name) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  raise_error("run_images: '" + call.name + "' is not a step; the steps are " + known);
}

void check_counts(const StepCall& call, const StepRow& row) {
  if (row.constants >= 0 && call.constants.size() != static_cast<std::size_t>(row.constants)) {
    refuse(call.name, "takes " + std::to_string(row.constants) + " constants, got " +
                          std::to_string(call.constants.size()));
  }
  for (const double constant : call.constants) {
    if (!std::isfinite(constant)) refuse(call.name, "constants must be finite");
  }
  if (call.parameter_count != row.parameters) {
    refuse(call.name, "takes " + std::to_string(row.parameters) + " parameters an image, got " +
                          std::to_string(call.parameter_count));
  }
}

bool method(const StepCall& call, double value, const char* what) {
  if (value != 0 && value != 1)
    refuse(call.name, std::string(what) + " must be 0 or 1, got " + text(value));
  return value == 1;
}

// mean and std, one per channel, as float32.
std::vector<float> normalization(const StepCall& call, std::int64_t channels) {
  const auto& c = call.constants;
  if (c.empty() || c[0] != static_cast<double>(channels) ||
      c.size() != 1 + 2 * static_cast<std::size_t>(channels)) {
    refuse("normalize", "constants must be the count of channels (" + std::to_string(channels) +
                            "), as many means and as many deviations, got " +
                            std::to_string(c.size()) + " numbers");
  }
  std::vector<float> numbers(c.begin() + 1, c.end());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const bool deviation = i >= static_cast<std::size_t>(channels);
    if (!std::isfinite(numbers[i]) || (deviation && numbers[i] == 0)) {
      refuse("normalize",
             "means must be finite and deviations not zero as float32, got " + text(c[i + 1]));
    }
  }
  return numbers;
}

}  // namespace

Program::Program(const std::vector<StepCall>& calls, std::int64_t channels, Element type,
                 const OutputRow& output, const StepTable* table)
    : table_(table), channels_(channels), source_type_(type), type_(type) {
  instructions_.reserve(calls.size());
  for (const StepCall& call : calls) compile(call);
  set_output(output);
}

void Program::compile(const StepCall& call) {
  const StepRow& row = row_of(call);
  check_counts(call, row);
  const auto& c = call.constants;
  if (row.geometric && moved_) {
    refuse(call.name, "images must be (height, width, channels); put it before ToCHW or Permute");
  }
  Instruction made{&row, call.parameters};
  if (row.kind == Kind::kCrop || row.kind == Kind::kResize || row.kind == Kind::kAffine) {
    made.height = side(row.name, c[0]);
    made.width = side(row.name, c[1]);
    if (made.height * made.width > kMaxElements / std::max<std::int64_t>(1, channels_)) {
      refuse(row.name, "the output must have at most 2**31 elements");
    }
  }
  if (row.kind == Kind::kResize || row.kind == Kind::kAffine) {
    made.bilinear = method(call, c[2], "method");
  }
  if (row.kind == Kind::kResize) made.antialias = method(call, c[3], "antialias");
  if (row.kind == Kind::kCrop) made.fill = checked_fill(row.name, c[2], type_);
  if (row.kind == Kind::kAffine) made.fill = checked_fill(row.name, c[3], type_);
  if (row.kind == Kind::kErase) made.fill = checked_fill(row.name, c[0], type_);
  if (row.kind == Kind::kColour && channels_ != 1 && channels_ != 3) {
    refuse("colour", "images must have 1 or 3 channels, got " + std::to_string(channels_));
  }
  if (row.kind == Kind::kNormalize) made.numbers = normalization(call, channels_);
  if (row.kind == Kind::kNormalize || row.kind == Kind::kToFloat) type_ = Element::kFloat;
  if (row.kind == Kind::kPermute) {
    int turned[3] = {}, seen = 0;
    for (int i = 0; i < 3; ++i) {
      if (c[i] != 0 && c[i] != 1 && c[i] != 2) break;
      turned[i] = axes_[static_cast<int>(c[i])];
      seen |= 1 << turned[i];
    }
    if (seen != 7) refuse(call.name, "axes must be an order of 0, 1 and 2");
    std::copy_n(turned, 3, axes_);
    moved_ = axes_[0] != 0 || axes_[1] != 1;
    return;
  }
  instructions_.push_back(std::move(made));
}

void Program::set_output(const OutputRow& output) {
  out_type_ = output.type;
  if (type_ == Element::kFloat && out_type_ == Element::kByte) {
    raise_error("run_images: the steps give float32 images, got an out of uint8; make it float32");
  }
  for (int i = 2; i >= 0; --i) {
    out_shape_[axes_[i]] = output.shape[i];
    out_strides_[axes_[i]] = out_size_;
    out_size_ *= output.shape[i];
  }
  if (out_shape_[2] != channels_) {
    raise_error("run_images: out must have " + std::to_string(channels_) + " channels on axis " +
                std::to_string(std::find(axes_, axes_ + 3, 2) - axes_) + " of an image, got " +
                std::to_string(out_shape_[2]));
  }
}

}  // namespace needle::data
