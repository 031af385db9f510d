// The handle that Python sees: Array, a one-dimensional buffer of one dtype, and the conversions
// between its buffers, views and NumPy arrays. Written against the C API: one is made per result.
#pragma once

#include <Python.h>

#include <optional>
#include <string>

#include "core/view.h"

namespace needle::bindings {

struct ArrayObject {
  PyObject_HEAD void* data;
  std::int64_t size;  // elements
  DType dtype;
  Py_ssize_t exports;   // for the buffer protocol: the shape of a buffer lives here
  Py_buffer* borrowed;  // non-null: the memory is another object's
  PyObject* weakrefs;   // for recordings (needle.capture): the end of a buffer
  int device;           // which of the module's devices the memory is of
};

// The source of the arrays' memory, which each module defines.
struct ArrayMemory {
  const char *type_name, *doc;
  bool on_host;  // Python may read and write it: the buffer protocol
  void* (*allocate)(std::size_t bytes, int device);  // throws std::bad_alloc
  void (*release)(void* data, std::size_t bytes, int device);
};
extern const ArrayMemory array_memory;

// Thrown when a Python exception is already set.
struct PythonError {};
[[noreturn]] void raise(PyObject* type, const std::string& message);

PyTypeObject* array_type();  // created at first use
bool is_array(PyObject* object);

// New references; throw PythonError, std::bad_alloc.
PyObject* new_array(std::int64_t size, DType dtype, int device = 0);
PyObject* adopt_buffer(PyObject* source);  // None where the memory cannot be shared

// The buffer-protocol format of a dtype, and back ("l" and "q" both are int64 where they are).
const char* format_of(DType dtype);
std::optional<DType> dtype_of_format(const char* format, Py_ssize_t itemsize);
// A dtype given as a name, a NumPy dtype or anything whose str() is a name.
DType dtype_from_python(PyObject* object);

}  // namespace needle::bindings
