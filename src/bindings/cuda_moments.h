// Adds conv2d_moments and batch_norm_of_moments to the CUDA module, for needle.capture.
#pragma once

#include <Python.h>

namespace needle::bindings {

void bind_cuda_moments(PyObject* module);

}  // namespace needle::bindings
