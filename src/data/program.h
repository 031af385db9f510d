// A list of augmentation steps, compiled for images of one kind and run on each image. Crops,
// flips and layouts only move a window over the source; colour and normalisation happen in
// the pass that writes the output; resize, affine and steps that cannot be combined use
// temporary memory of the thread. python/needle/data/transforms/ describes constants and
// parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/instruction.h"
#include "data/steps.h"

namespace needle::data {

struct StepCall {
  std::string name;
  std::vector<double> constants;
  const double* parameters;  // (images, parameter_count), compact
  std::int64_t parameter_count;
};

struct SourceImage {  // strides in elements
  const void* data;
  std::int64_t height, width, channels;
  std::int64_t row_stride, column_stride, channel_stride;
};

struct OutputRow {  // one image of the output, compact, with its axes in the order that the steps
                    // give
  std::int64_t shape[3];
  Element type;
};

class Program {
 public:
  // Throws an Error that names the step if steps, images and output do not match. `table` is null
  // for a program that is lowered (lower.h) instead of run.
  Program(const std::vector<StepCall>& calls, std::int64_t channels, Element type,
          const OutputRow& output, const StepTable* table);

  // Runs the steps on the image with parameters number `sample` and writes `out`. Throws Error for
  // parameters or sizes that do not fit. Any number of threads may call it at once.
  void run(const SourceImage& image, std::int64_t sample, void* out) const;

 private:
  friend struct Run;
  friend class Lowering;

  void compile(const StepCall& call);
  void set_output(const OutputRow& output);

  std::vector<Instruction> instructions_;
  const StepTable* table_;
  std::int64_t channels_;
  Element source_type_, type_, out_type_;
  int axes_[3] = {0, 1, 2};  // of the output: 0 height, 1 width, 2 channels
  bool moved_ = false;       // the axes are no longer height, width, channels
  std::int64_t out_shape_[3], out_strides_[3], out_size_ = 1;  // height, width, channels
};

}  // namespace needle::data
