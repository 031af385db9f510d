// Augmentation of a batch of images that are on the device: each pass is one launch.
#pragma once

#include <cstdint>

#include "core/image_pass.h"

namespace needle::cuda {

// images: the base of their offsets. words: the batch's words, on the device. out: the images of
// the last pass, one after the other.
void run_passes(const ImageBatch& batch, const void* images, const std::uint32_t* words, void* out,
                int device);

}  // namespace needle::cuda
