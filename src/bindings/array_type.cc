#include "array_type.h"

#include <structmember.h>

#include <cstddef>
#include <cstring>
#include <limits>

namespace needle::bindings {
namespace {

ArrayObject* cast(PyObject* self) { return reinterpret_cast<ArrayObject*>(self); }

std::size_t bytes_of(const ArrayObject* a) { return a->size * size_of(a->dtype); }

ArrayObject* bare_array(std::int64_t size, DType dtype, int device) {
  PyTypeObject* type = array_type();
  ArrayObject* a = cast(type->tp_alloc(type, 0));
  if (a == nullptr) throw PythonError{};
  a->size = size;  // the fields that are not set here are 0
  a->dtype = dtype;
  a->device = device;
  return a;
}

PyObject* array_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"size", "dtype", nullptr};
  long long size = 0;
  PyObject* dtype = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L|O:Array", const_cast<char**>(keywords), &size,
                                   &dtype)) {
    return nullptr;
  }
  return guarded([&] {
    return new_array(size, dtype == nullptr ? DType::kFloat32 : dtype_from_python(dtype));
  });
}

void array_dealloc(PyObject* self) {
  ArrayObject* a = cast(self);
  if (a->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  if (a->borrowed != nullptr) {
    PyBuffer_Release(a->borrowed);
    delete a->borrowed;
  } else if (a->data != nullptr) {
    array_memory.release(a->data, bytes_of(a), a->device);
  }
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

int array_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  ArrayObject* a = cast(self);
  if (!array_memory.on_host) {
    PyErr_SetString(PyExc_BufferError, "Array: its memory is a device's; use download");
    return -1;
  }
  view->obj = Py_NewRef(self);
  view->buf = a->data;
  view->len = static_cast<Py_ssize_t>(bytes_of(a));
  view->readonly = 0;
  view->itemsize = static_cast<Py_ssize_t>(size_of(a->dtype));
  view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format_of(a->dtype)) : nullptr;
  view->ndim = 1;
  view->shape = flags & PyBUF_ND ? reinterpret_cast<Py_ssize_t*>(&a->size) : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? &view->itemsize : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  return 0;
}
static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));

PyObject* get_size(PyObject* self, void*) { return PyLong_FromLongLong(cast(self)->size); }
PyObject* get_dtype(PyObject* self, void*) {
  return PyUnicode_FromString(name_of(cast(self)->dtype));
}
PyObject* ptr(PyObject* self, PyObject*) { return PyLong_FromVoidPtr(cast(self)->data); }
PyObject* repr(PyObject* self) {
  return PyUnicode_FromFormat("Array(%lld, '%s')", static_cast<long long>(cast(self)->size),
                              name_of(cast(self)->dtype));
}

PyGetSetDef properties[] = {
    {"size", get_size, nullptr, "number of elements", nullptr},
    {"dtype", get_dtype, nullptr, "name of the elements' dtype", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ArrayObject, weakrefs), READONLY, nullptr},
    {"written", T_LONGLONG, offsetof(ArrayObject, written), 0, "the time of the last write"},
    {"shared", T_BOOL, offsetof(ArrayObject, shared), 0, "whether a host array has the memory"},
    {nullptr, 0, 0, 0, nullptr},
};
PyMethodDef methods[] = {
    {"ptr", ptr, METH_NOARGS, "The address of the first element."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw PythonError{};
}

PyTypeObject* array_type() {
  static PyTypeObject* type = [] {
    static PyType_Slot slots[] = {
        {Py_tp_new, reinterpret_cast<void*>(array_new)},
        {Py_tp_dealloc, reinterpret_cast<void*>(array_dealloc)},
        {Py_tp_repr, reinterpret_cast<void*>(repr)},
        {Py_tp_getset, properties},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_bf_getbuffer, reinterpret_cast<void*>(array_getbuffer)},
        {Py_tp_doc, const_cast<char*>(array_memory.doc)},
        {0, nullptr},
    };
    static PyType_Spec spec = {array_memory.type_name, sizeof(ArrayObject), 0, Py_TPFLAGS_DEFAULT,
                               slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  }();
  return type;
}

bool is_array(PyObject* object) { return Py_TYPE(object) == array_type(); }

PyObject* new_array(std::int64_t size, DType dtype, int device) {
  if (size < 0)
    raise(PyExc_ValueError, "Array: the size must not be negative, got " + std::to_string(size));
  if (size > std::numeric_limits<std::int64_t>::max() / 16) {
    raise(PyExc_MemoryError, "Array: " + std::to_string(size) + " elements do not fit in memory");
  }
  void* data = array_memory.allocate(size * size_of(dtype), device);
  ArrayObject* a = bare_array(size, dtype, device);
  a->data = data;
  return reinterpret_cast<PyObject*>(a);
}

PyObject* adopt_buffer(PyObject* source) {
  auto* buffer = new Py_buffer;
  if (PyObject_GetBuffer(source, buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    delete buffer;
    Py_RETURN_NONE;
  }
  const std::optional<DType> dtype = dtype_of_format(buffer->format, buffer->itemsize);
  const bool aligned = reinterpret_cast<std::uintptr_t>(buffer->buf) % buffer->itemsize == 0;
  if (!dtype || !aligned) {
    PyBuffer_Release(buffer);
    delete buffer;
    Py_RETURN_NONE;
  }
  ArrayObject* a = bare_array(buffer->len / buffer->itemsize, *dtype, 0);
  a->data = buffer->buf;
  a->borrowed = buffer;
  a->shared = 1;
  return reinterpret_cast<PyObject*>(a);
}

const char* format_of(DType dtype) {
  switch (dtype) {
#define NEEDLE_ROW(row, name, type, compute, format) \
  case DType::row: return format;
    NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
  return nullptr;
}

std::optional<DType> dtype_of_format(const char* format, Py_ssize_t itemsize) {
  if (format == nullptr) return DType::kUInt8;
  if (std::strlen(format) == 2 && std::strchr("@=<", format[0]) != nullptr) ++format;
  if (std::strlen(format) != 1) return std::nullopt;
  switch (*format) {
    case '?': return DType::kBool;
    case 'B': return DType::kUInt8;
    case 'f': return DType::kFloat32;
    case 'd': return DType::kFloat64;
    case 'i':
    case 'l':
    case 'q': return itemsize == 4 ? DType::kInt32 : DType::kInt64;
    default: return std::nullopt;
  }
}

static DType dtype_by_name(PyObject* object) {
  PyObject* text = PyObject_Str(object);  // a numpy.dtype's str() is its name
  const char* name = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  std::string given = name == nullptr ? "?" : name;
  Py_XDECREF(text);
  if (name == nullptr) throw PythonError{};
  std::string known;
#define NEEDLE_ROW(row, row_name, ...)                            \
  if (!is_storage(DType::row) || !array_memory.on_host) {         \
    if (given == row_name) return DType::row;                     \
    known += (known.empty() ? "" : ", ") + std::string(row_name); \
  }
  NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  raise(PyExc_TypeError, "Array: '" + given + "' is not a supported dtype; use one of " + known);
}

DType dtype_from_python(PyObject* object) {
  // NumPy's dtypes are singletons, so after the first time their address identifies them.
#define NEEDLE_ROW(...) +1
  constexpr int rows = 0 NEEDLE_DTYPES(NEEDLE_ROW);
#undef NEEDLE_ROW
  static PyObject* seen[rows] = {};
  for (int row = 0; row < rows; ++row) {
    if (object == seen[row]) return static_cast<DType>(row);
  }
  const DType dtype = dtype_by_name(object);
  PyObject*& place = seen[static_cast<int>(dtype)];
  if (place == nullptr && !PyUnicode_Check(object)) place = Py_NewRef(object);
  return dtype;
}

}  // namespace needle::bindings
