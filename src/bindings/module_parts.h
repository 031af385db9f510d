// Declares the parts of the Python modules that are defined in files of their own.
#pragma once

#include <pybind11/pybind11.h>

namespace needle::bindings {

// Adds the submodule `data` to the CPU module, for needle.data.samples.native_kernels.
void bind_data(pybind11::module_& parent);
void bind_images(pybind11::module_& data);  // its run_images, lower_images
// Binds src/cpu/prepared_conv2d.h with the signatures of python/needle/backends/base.py. Throws
// PythonError.
void bind_prepared_conv2d(PyObject* module);
// Adds run_images_on and pin_on to the CUDA module, for needle.data.
void bind_cuda_images(pybind11::module_& m);
// Adds conv2d_moments and batch_norm_of_moments to the CUDA module, for needle.capture. Throws
// PythonError.
void bind_cuda_moments(PyObject* module);

}  // namespace needle::bindings
