// Binds src/cpu/prepared_conv2d.h to Python, under the signatures of
// python/needle/backends/base.py.
#pragma once

#include <Python.h>

namespace needle::bindings {

void bind_prepared_conv2d(PyObject* module);  // throws PythonError

}  // namespace needle::bindings
