// A program for a batch in the form that a device runs: core/image_pass.h. Neighbouring crops and
// flips become one window, the weights of resized axes become tables; a second resize or affine
// begins a new pass, since each of its pixels needs several pixels of the first one. Parameters and
// sizes are checked as in Program::run.
#pragma once

#include <span>

#include "core/image_pass.h"
#include "data/program.h"

namespace needle::data {

// images: of all samples, in order; their data are offsets from one base: SourceImage::data is not
// read, `offsets` counts elements. Throws Error if sizes or parameters do not match.
ImageBatch lower(const Program& program, std::span<const SourceImage> images,
                 std::span<const std::int64_t> offsets);

}  // namespace needle::data
