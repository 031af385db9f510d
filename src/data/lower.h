// Lowers the program of a batch to the form that a device runs: core/image_pass.h. Adjacent crops
// and flips become one window, and the weights of resized axes become tables. A second resize or
// affine map starts a new pass, since each of its pixels needs several pixels of the first one.
// Parameters and sizes are checked as in Program::run.
#pragma once

#include <span>

#include "core/image_pass.h"
#include "data/program.h"

namespace needle::data {

// `images` has the images of all samples, in order. `offsets` has their distances from one base
// address, in elements; SourceImage::data is not read. Throws Error if sizes or parameters do not
// match.
ImageBatch lower(const Program& program, std::span<const SourceImage> images,
                 std::span<const std::int64_t> offsets);

}  // namespace needle::data
