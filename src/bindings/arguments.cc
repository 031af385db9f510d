#include "arguments.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "core/elementwise_ops.h"
#include "core/scalar_math.h"

namespace needle::bindings {
namespace {

[[noreturn]] void fail(const char* function, const std::string& rule) {
  raise(PyExc_ValueError, std::string(function) + ": " + rule);
}

[[noreturn]] void refuse(const char* function, const char* expected, PyObject* object) {
  PyErr_Clear();
  raise(PyExc_TypeError,
        std::string(function) + ": expected " + expected + ", got " + Py_TYPE(object)->tp_name);
}

std::int64_t small_int(const char* function, PyObject* object) {
  const long long value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    fail(function, "a view's shape, strides and offset must be 64-bit integers");
  }
  return value;
}

// Returns true if `dtype` can represent the integer scalar.
bool fits(std::int64_t value, int overflow, DType dtype) {
  return with_type(computed(dtype), [&]<class T>(Tag<T>) {
    if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, bool>)
      return true;
    else
      return overflow == 0 && std::in_range<T>(value);
  });
}

// Returns the place of a view of this layout.
Place place_of(const char* function, const View& v, std::int64_t offset) {
  Place place{.function = function, .offset = offset, .low = offset, .high = offset};
  for (int i = 0; i < v.ndim; ++i) {
    if (v.shape[i] == 0) return {.function = function, .offset = offset};
    const __int128 reach = __int128(v.shape[i] - 1) * v.strides[i];
    (reach < 0 ? place.low : place.high) += reach;
  }
  return place;
}

// Returns the shape, strides and dtype of a view in Python.
View layout_of(const char* function, PyObject* object) {
  if (!is_view(object)) {
    refuse(function, "a View (handle, shape, strides, offset, dtype)", object);
  }
  PyObject* shape = PyTuple_GET_ITEM(object, 1);
  PyObject* strides = PyTuple_GET_ITEM(object, 2);
  if (!PyTuple_Check(shape) || !PyTuple_Check(strides) ||
      PyTuple_GET_SIZE(shape) != PyTuple_GET_SIZE(strides)) {
    fail(function, "a view's shape and strides must be tuples of one length");
  }
  if (PyTuple_GET_SIZE(shape) > kMaxDims) {
    fail(function, "a view may have " + std::to_string(kMaxDims) + " dimensions, got " +
                       std::to_string(PyTuple_GET_SIZE(shape)));
  }
  View v;
  v.ndim = static_cast<int>(PyTuple_GET_SIZE(shape));
  __int128 elements = 1;
  for (int i = 0; i < v.ndim; ++i) {
    v.shape[i] = small_int(function, PyTuple_GET_ITEM(shape, i));
    v.strides[i] = small_int(function, PyTuple_GET_ITEM(strides, i));
    if (v.shape[i] < 0) fail(function, "a view's shape must not be negative");
    elements *= v.shape[i];
    if (elements > INT64_MAX) fail(function, "a view's shape must fit 64 bits");
  }
  v.dtype = dtype_from_python(PyTuple_GET_ITEM(object, 4));
  return v;
}

}  // namespace

bool is_view(PyObject* object) { return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == 5; }

void Place::put(View& v, PyObject* handle, std::int64_t shift) const {
  if (!is_array(handle)) refuse(function, "an Array of this module as the view's handle", handle);
  const auto* array = reinterpret_cast<ArrayObject*>(handle);
  if (v.dtype != array->dtype) {
    fail(function, std::string("the view's dtype must be its buffer's, ") + name_of(array->dtype));
  }
  if (low <= high && (low + shift < 0 || high + shift >= array->size)) {
    fail(function, "the view reaches outside its buffer of " + std::to_string(array->size) +
                       " elements (offset " + std::to_string(offset + shift) + ")");
  }
  v.data = array->data;
  if (low <= high)
    v.data = static_cast<char*>(array->data) + (offset + shift) * std::int64_t(size_of(v.dtype));
  v.device = array->device;
}

View to_view(const char* function, PyObject* object) {
  View v = layout_of(function, object);
  const std::int64_t offset = small_int(function, PyTuple_GET_ITEM(object, 3));
  place_of(function, v, offset).put(v, PyTuple_GET_ITEM(object, 0), 0);
  return v;
}

View Arguments::view(PyObject* object) {
  if (places != nullptr) {
    const View v = layout_of(function, object);
    places->push_back(place_of(function, v, small_int(function, PyTuple_GET_ITEM(object, 3))));
    places->back().slot = small_int(function, PyTuple_GET_ITEM(object, 0));
    return v;
  }
  const View v = to_view(function, object);
  if (device >= 0 && v.device != device) {
    fail(function, "the arrays must be on one device, got device " + std::to_string(device) +
                       " and device " + std::to_string(v.device) + "; move one of them");
  }
  device = v.device;
  return v;
}

Arguments Arguments::next_items(int size, const char* what) {
  PyObject* object = next();
  if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != size) refuse(function, what, object);
  return {function, PySequence_Fast_ITEMS(object), size};
}

namespace {

double to_double(const char* function, PyObject* object) {
  const double value = PyFloat_AsDouble(object);
  if (value == -1.0 && PyErr_Occurred() != nullptr) refuse(function, "a float", object);
  return value;
}

// Takes the name of an operation. If the name is unknown, the error lists the known ones.
template <class Op>
void take_operation(Arguments& from, Op& value, std::span<const char* const> names) {
  PyObject* object = from.next();
  Py_ssize_t length = 0;
  const char* given = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &length) : nullptr;
  if (given == nullptr) refuse(from.function, "the operation's name as a str", object);
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::strcmp(given, names[i]) == 0) {
      value = static_cast<Op>(i);
      return;
    }
  }
  for (const char* name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  fail(from.function, "unknown operation '" + std::string(given) + "'; known: " + known);
}

}  // namespace

std::span<const char* const> unary_names() { return kUnaryNames; }

void take(Arguments& from, View& value) { value = from.next_view(); }
void take(Arguments& from, UnaryOp& value) { take_operation(from, value, kUnaryNames); }
void take(Arguments& from, BinaryOp& value) { take_operation(from, value, kBinaryNames); }
void take(Arguments& from, ReduceOp& value) { take_operation(from, value, kReduceNames); }
void take(Arguments& from, RandomOp& value) { take_operation(from, value, kRandomNames); }
void take(Arguments& from, double& value) { value = to_double(from.function, from.next()); }

void take(Arguments& from, bool& value) {
  PyObject* object = from.next();
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) refuse(from.function, "a bool", object);
  value = truth != 0;
}

void take(Arguments& from, int& value) {
  std::int64_t wide = 0;
  take(from, wide);
  value = static_cast<int>(wide);
}

void take(Arguments& from, std::int64_t& value) {
  PyObject* object = from.next();
  value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred() != nullptr) refuse(from.function, "an int", object);
}

void take(Arguments& from, std::uint64_t& value) {
  PyObject* object = from.next();
  value = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred() != nullptr) refuse(from.function, "an int in [0, 2**64)", object);
}

void take(Arguments& from, Pair& value) {
  Arguments items = from.next_items(2, "a tuple of two ints");
  take_all(items, value.h, value.w);
}

void take(Arguments& from, Geometry& g) {
  Arguments items = from.next_items(4, "a Geometry (stride, padding, dilation, groups)");
  take_all(items, g.stride, g.padding, g.dilation, g.groups);
}

void take(Arguments& from, Pool2dParams& p) { take_all(from, p.kernel, p.stride, p.padding); }

void take(Arguments& from, RandomParams& r) { take_all(from, r.seed, r.draw, r.a, r.b); }

void take(Arguments& from, SgdParams& s) {
  take_all(from, s.lr, s.momentum, s.dampening, s.weight_decay, s.nesterov);
}

void take(Arguments& from, AdamParams& a) {
  take_all(from, a.lr, a.beta1, a.beta2, a.eps, a.weight_decay, a.decoupled, a.step);
}

View ScalarValue::as_view(DType dtype, const View& like) {
  with_type(computed(dtype), [&]<class T>(Tag<T>) {
    const T value =
        std::is_floating_point_v<T> ? static_cast<T>(floating) : math::convert<T>(integer);
    std::memcpy(bytes, &value, sizeof value);
  });
  View v = like;
  v.data = bytes;
  v.dtype = dtype;
  v.is_scalar = true;
  for (int i = 0; i < v.ndim; ++i) v.strides[i] = 0;
  return v;
}

ScalarValue to_scalar(const char* function, PyObject* object, DType dtype) {
  ScalarValue scalar;
  if (PyLong_Check(object)) {  // bool too
    int overflow = 0;
    scalar.integer = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (dtype == DType::kBool) scalar.integer = overflow != 0 || scalar.integer != 0;
    if (!fits(scalar.integer, overflow, dtype)) {
      raise(PyExc_OverflowError, std::string(function) + ": the scalar does not fit " +
                                     name_of(dtype) + "; use a smaller one or a floating dtype");
    }
    scalar.floating = PyLong_AsDouble(object);  // OverflowError beyond float64
    if (PyErr_Occurred() != nullptr) throw PythonError{};
  } else {
    scalar.floating = to_double(function, object);
    scalar.integer =
        dtype == DType::kBool ? scalar.floating != 0 : math::convert<std::int64_t>(scalar.floating);
  }
  return scalar;
}

const View* MaybeViews::keep(Arguments& from, PyObject* object) {
  if (object == Py_None) return nullptr;
  views.reserve(kMost);  // so that no View moves
  return &views.emplace_back(from.view(object));
}

Caster<const Epilogue&>::Caster(Arguments& from) {
  Arguments items = from.next_items(3, "an Epilogue (bias, residual, relu)");
  value = {keep(from, items.next()), keep(from, items.next())};
  take(items, value.relu);
}

Caster<const EpilogueGrad&>::Caster(Arguments& from) {
  Arguments items = from.next_items(3, "an EpilogueGrad (bias, result, residual_grad)");
  value = {keep(from, items.next()), keep(from, items.next()), keep(from, items.next())};
}

Caster<Views>::Caster(Arguments& from) {
  PyObject* items = PySequence_Fast(from.next(), "expected a sequence of views");
  if (items == nullptr) throw PythonError{};
  try {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    views.reserve(n);
    for (Py_ssize_t i = 0; i < n; ++i) {
      views.push_back(from.view(PySequence_Fast_GET_ITEM(items, i)));
    }
  } catch (...) {
    Py_DECREF(items);
    throw;
  }
  Py_DECREF(items);
  value = views;
}

}  // namespace needle::bindings
