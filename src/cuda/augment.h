// Augments a batch of images in device memory; each pass is one launch.
#pragma once

#include <cstdint>

#include "core/image_pass.h"

namespace needle::cuda {

// `images` is the address to which the images' offsets are relative. `words` has the batch's words,
// in device memory. `out` receives the images of the last pass, one after the other.
void run_passes(const ImageBatch& batch, const void* images, const std::uint32_t* words, void* out,
                int device);

}  // namespace needle::cuda
