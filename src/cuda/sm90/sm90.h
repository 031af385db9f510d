// The switch for features of sm_90 (H100, H200) only: warpgroup MMA and TMA. These kernels have run
// on the tests' emulator alone, and a wrong byte count would make them wait at an mbarrier forever,
// so they are opt-in: NEEDLE_CUDA_SM90 in python/needle/config.py. Without it an sm_90 GPU runs the
// kernels of sm_80 (mma.sync, cp.async).
#pragma once

namespace needle::cuda {

void enable_sm90(bool on);
bool uses_sm90(int device);  // enabled, compiled, and the device is one

}  // namespace needle::cuda
