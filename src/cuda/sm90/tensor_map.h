// Makes tensor maps, which describe arrays to TMA (instructions.h); the driver encodes them. A load
// copies a box of a tensor to shared memory, with zeros out of bounds, in the swizzled rows of 64
// bytes that wgmma reads. Launchers call these functions after use(device), because the driver
// refuses a thread that has no current context.
#pragma once

#include <cstdint>
#include <optional>

#include "../device.h"
#include "core/bfloat16.h"

#ifndef NEEDLE_CUDA_ON_CPU  // the emulator's runtime declares what is used of it
#include <cuda.h>
#endif

namespace needle::cuda {

using TensorMap = CUtensorMap;

// An axis of a tensor; the stride is in elements.
struct TensorAxis {
  std::int64_t size = 1, stride = 0;
};

// Returns the map of a bfloat16 tensor for boxes of 32 x rows x 1 x 1 elements. The first axis has
// stride 1. Returns no value if the tensor's address or strides are not aligned, or the driver has
// no tensor maps.
std::optional<TensorMap> tiled_map(const BFloat16* data, const TensorAxis (&axes)[4],
                                   std::uint32_t rows);

// An axis of the windows of a convolution: windows begin `stride` apart, the first one at pixel
// `first`, which may be out of bounds.
struct WindowAxis {
  std::int64_t first, stride, count;
};

// Returns the map of bfloat16 images (C, W, H, N) for boxes of 32 channels x `pixels`. A box has
// the pixel that one tap reads in each of `pixels` consecutive windows. `across` and `down` say
// where the windows begin for the tap nearest to the first pixel; other taps are at most 255 pixels
// further on.
std::optional<TensorMap> im2col_map(const BFloat16* data, const TensorAxis (&axes)[4],
                                    const WindowAxis& across, const WindowAxis& down,
                                    std::uint32_t pixels);

}  // namespace needle::cuda
