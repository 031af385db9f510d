// Defines Array, the Python type of a one-dimensional buffer of one dtype, and the conversions
// between buffers, views and NumPy arrays. It uses the C API directly instead of pybind11, because
// every operation creates an Array.
#pragma once

#include <Python.h>

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "core/check.h"
#include "core/not_implemented.h"
#include "core/view.h"

namespace needle::bindings {

struct ArrayObject {
  PyObject_HEAD void* data;
  std::int64_t size;  // elements
  DType dtype;
  Py_buffer* borrowed;  // non-null: another object owns the memory
  PyObject* weakrefs;   // for recordings (needle.capture): the end of a buffer
  long long written;    // the time of the last write, which needle.backends.writes counts
  char shared;          // whether a host array has ever had the same memory
  int device;           // which of the module's devices holds the memory
};

// The allocator of the arrays' memory; each module defines its own.
struct ArrayMemory {
  const char *type_name, *doc;
  bool on_host;  // the host can access it: the buffer protocol works
  void* (*allocate)(std::size_t bytes, int device);  // throws std::bad_alloc
  void (*release)(void* data, std::size_t bytes, int device);
};
extern const ArrayMemory array_memory;

// Thrown when a Python exception is already set.
struct PythonError {};
[[noreturn]] void raise(PyObject* type, const std::string& message);

// Runs f and returns its result. If f throws, sets a Python exception and returns null. The forced
// unwinding by which Python ends a daemon thread passes through.
template <class F>
PyObject* guarded(F&& f) {
  try {
    return f();
  } catch (const PythonError&) {
  } catch (const Error& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const NotImplemented& open) {
    PyErr_SetString(PyExc_NotImplementedError, open.what());
  } catch (const std::bad_alloc& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyTypeObject* array_type();  // created at first use
bool is_array(PyObject* object);

// Both return new references and throw PythonError or std::bad_alloc.
PyObject* new_array(std::int64_t size, DType dtype, int device = 0);
PyObject* adopt_buffer(PyObject* source);  // None where the memory cannot be shared

// Convert a dtype to its buffer-protocol format and back. Both "l" and "q" mean int64 where they
// have 8 bytes.
const char* format_of(DType dtype);
std::optional<DType> dtype_of_format(const char* format, Py_ssize_t itemsize);
// Converts a name, a NumPy dtype or any object whose str() is a name to a dtype.
DType dtype_from_python(PyObject* object);

}  // namespace needle::bindings
