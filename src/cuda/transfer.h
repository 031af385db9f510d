// Copies between host and device memory, for the bindings' upload and download.
#pragma once

#include "core/view.h"

namespace needle::cuda {

// `host` has out's elements in row-major order; it may change as soon as the call returns.
void upload(const void* host, const View& out);
// Waits for all preceding work on a's device.
void download(const View& a, void* host);

}  // namespace needle::cuda
