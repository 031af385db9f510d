// The parts of the Python modules that have files of their own.
#pragma once

#include <pybind11/pybind11.h>

namespace needle::bindings {

// The submodule `data` of the CPU module, for needle.data.samples.native_kernels.
void bind_data(pybind11::module_& parent);
void bind_images(pybind11::module_& data);  // its run_images, lower_images
// src/cpu/prepared_conv2d.h, under the signatures of python/needle/backends/base.py; throws
// PythonError.
void bind_prepared_conv2d(PyObject* module);
// run_images_on and pin_on of the CUDA module, for needle.data.
void bind_cuda_images(pybind11::module_& m);
// conv2d_moments and batch_norm_of_moments of the CUDA module, for needle.capture; throws
// PythonError.
void bind_cuda_moments(PyObject* module);

}  // namespace needle::bindings
