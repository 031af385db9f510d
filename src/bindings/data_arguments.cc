// See data_arguments.h.
#include "data_arguments.h"

#include <cstdlib>
#include <cstring>

namespace py = pybind11;

namespace needle::bindings {

std::string shape_of(const py::array& array) {
  return py::str(array.attr("shape")).cast<std::string>();
}

std::uint64_t masked(const char* name, const py::handle& value) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    raise_error(std::string(name) + " must be a whole number, got " +
                py::repr(value).cast<std::string>());
  }
  return PyLong_AsUnsignedLongLongMask(number.ptr());
}

Integers integers(const std::string& name, const py::handle& value) {
  if (!py::isinstance<py::array>(value)) {
    raise_error(name + " must be an array of int64, got " +
                std::string(Py_TYPE(value.ptr())->tp_name));
  }
  const auto array = py::reinterpret_borrow<py::array>(value);
  if (!array.dtype().equal(py::dtype::of<std::int64_t>()) || array.ndim() != 1) {
    raise_error(name + " must be int64 of one axis, got " +
                py::str(array.dtype()).cast<std::string>() + " " + shape_of(array));
  }
  Integers values(array.shape(0));
  const char* from = static_cast<const char*>(array.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&values[i], from + static_cast<py::ssize_t>(i) * array.strides(0),
                sizeof values[i]);
  }
  return values;
}

void check_writeable(const std::string& op, const py::array& out) {
  if (!out.writeable()) raise_error(op + ": out must be writeable");
}

void check_rows_apart(const std::string& op, const py::array& out, std::int64_t row_bytes) {
  if (out.shape(0) > 1 && std::abs(out.strides(0)) < row_bytes) {
    raise_error(op + ": rows of out must not overlap");
  }
}

bool is_compact_row(const py::array& array) {
  if (array.size() == 0) return true;
  std::int64_t stride = array.itemsize();
  for (int axis = static_cast<int>(array.ndim()) - 1; axis > 0; --axis) {
    if (array.shape(axis) != 1 && array.strides(axis) != stride) return false;
    stride *= array.shape(axis);
  }
  return true;
}

std::int64_t row_bytes(const py::array& array) {
  std::int64_t bytes = array.itemsize();
  for (int axis = 1; axis < array.ndim(); ++axis) bytes *= array.shape(axis);
  return bytes;
}

}  // namespace needle::bindings
