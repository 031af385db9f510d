// Descriptors of arrays for the bulk copies of sm_90 (TMA: instructions.h), which the driver
// writes. A copy brings a box of a tensor to shared memory, with zeros beyond its sides, in the
// swizzled rows of 64 bytes that wgmma reads. Called by the launchers of products (bulk_tile.h),
// after use(device): the driver refuses a thread that has not used a GPU yet.
#pragma once

#include <cstdint>
#include <optional>

#include "core/bfloat16.h"
#include "device.h"

#ifndef NEEDLE_CUDA_ON_CPU  // the emulator's runtime has what is needed of it
#include <cuda.h>
#endif

namespace needle::cuda {

using TensorMap = CUtensorMap;

// An axis of a tensor, the stride in elements.
struct Axis {
  std::int64_t size = 1, stride = 0;
};

// The map of a tensor of bfloat16 for boxes of 32 x lines x 1 x 1 elements. The first axis has
// stride 1. No value if the tensor's address or strides do not suit, or the driver has no such
// maps.
std::optional<TensorMap> box_map(const BFloat16* data, const Axis (&axes)[4], std::uint32_t lines);

// An axis of the windows of a convolution: windows begin `stride` apart, the first one at pixel
// `first`, which may lie outside the image.
struct WindowAxis {
  std::int64_t first, stride, count;
};

// The map of images (C, W, H, N) of bfloat16 for boxes of 32 channels x `pixels`: a pixel for each
// of as many windows in turn, that of one tap. `across` and `down` are where the windows begin for
// the tap nearest to the first pixel; other taps are at most 255 pixels further on.
std::optional<TensorMap> window_map(const BFloat16* data, const Axis (&axes)[4],
                                    const WindowAxis& across, const WindowAxis& down,
                                    std::uint32_t pixels);

}  // namespace needle::cuda
