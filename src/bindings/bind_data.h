// Adds the submodule `data` to the module, for needle.data.samples.native_kernels.
#pragma once

#include <pybind11/pybind11.h>

namespace needle::bindings {

void bind_data(pybind11::module_& parent);
void bind_images(pybind11::module_& data);  // its run_images, lower_images

}  // namespace needle::bindings
