// Adds run_images_on and pin_on to the CUDA module, for needle.data.
#pragma once

#include <pybind11/pybind11.h>

namespace needle::bindings {

void bind_cuda_images(pybind11::module_& m);

}  // namespace needle::bindings
