// The arguments of the ten functions: buffers, views of them, and numbers. You need not change this
// file; the functions are in kernels.cc.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace py = pybind11;
using Size = std::int64_t;

enum class DType { kBool, kUint8, kInt32, kInt64, kFloat32, kFloat64 };

// Calls f with a zero of the dtype's C++ type: dispatch(d, [&](auto zero) {...}).
template <class F>
void dispatch(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool: return f(bool{});
    case DType::kUint8: return f(std::uint8_t{});
    case DType::kInt32: return f(std::int32_t{});
    case DType::kInt64: return f(std::int64_t{});
    case DType::kFloat32: return f(float{});
    case DType::kFloat64: return f(double{});
  }
}

inline std::size_t size_of(DType dtype) {
  std::size_t size = 0;
  dispatch(dtype, [&](auto zero) { size = sizeof(zero); });
  return size;
}

// The handle: memory for `size` elements, freed when Python drops it.
struct Buffer {
  Buffer(Size count, DType dtype) : size(count), memory(new std::byte[count * size_of(dtype)]) {}
  Size size;
  std::unique_ptr<std::byte[]> memory;
};

// A strided window on a buffer. Strides count elements; `data` is the element of index (0, 0, ...).
struct View {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<Size> shape, strides;
  enum class Layout { kCompact, kConstant, kStrided } layout = Layout::kStrided;

  View() = default;
  View(void* first, DType type, std::vector<Size> sizes, std::vector<Size> steps)
      : data(first), dtype(type), shape(std::move(sizes)), strides(std::move(steps)) {
    Size expected = 1;
    bool compact = true, constant = true;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      compact &= shape[axis] == 1 || strides[axis] == expected;
      constant &= shape[axis] == 1 || strides[axis] == 0;
      expected *= shape[axis];
    }
    layout = compact ? Layout::kCompact : constant ? Layout::kConstant : Layout::kStrided;
  }

  Size count() const {
    Size n = 1;
    for (Size each : shape) n *= each;
    return n;
  }

  // Returns the offset from `data` of element i, counted in row-major order.
  Size place(Size i) const {
    if (layout == Layout::kCompact) return i;
    if (layout == Layout::kConstant) return 0;
    Size found = 0;
    for (std::size_t axis = shape.size(); axis-- > 0; i /= shape[axis]) {
      found += i % shape[axis] * strides[axis];
    }
    return found;
  }

  // Returns the step from one element to the next along the last axis.
  Size step() const { return strides.empty() ? 0 : strides.back(); }

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// A Python bool, int or float.
struct Number {
  bool is_float = false;
  double real = 0;
  Size integer = 0;

  // Converts as in C: floats are truncated, integers wrap around.
  template <class T>
  T as() const {
    if constexpr (std::is_same_v<T, bool>) return is_float ? real != 0 : integer != 0;
    return is_float ? static_cast<T>(real) : static_cast<T>(integer);
  }
};

using Operand = std::variant<View, Number>;

namespace needle {

// Raises NotImplementedError in Python; acquires the GIL, which the caller may have released.
[[noreturn]] inline void not_implemented(const char* message) {
  const py::gil_scoped_acquire lock;
  PyErr_SetString(PyExc_NotImplementedError, message);
  throw py::error_already_set();
}

}  // namespace needle

// ---- conversions from Python, found by pybind11 -------------------------------------------------

namespace pybind11::detail {

template <>
struct type_caster<DType> {
  PYBIND11_TYPE_CASTER(DType, const_name("numpy.dtype"));
  bool load(handle source, bool) {
    if (!isinstance<dtype>(source)) return false;
    const auto given = reinterpret_borrow<dtype>(source);
    const bool wide = given.itemsize() == 8;
    switch (given.kind()) {
      case 'b': value = DType::kBool; return true;
      case 'u': value = DType::kUint8; return true;
      case 'i': value = wide ? DType::kInt64 : DType::kInt32; return true;
      case 'f': value = wide ? DType::kFloat64 : DType::kFloat32; return true;
      default: return false;
    }
  }
};

template <>
struct type_caster<View> {
  PYBIND11_TYPE_CASTER(View, const_name("needle.backends.View"));
  bool load(handle source, bool) {
    if (!isinstance<tuple>(source)) return false;
    const auto fields = reinterpret_borrow<tuple>(source);  // handle, shape, strides, offset, dtype
    if (fields.size() != 5 || !isinstance<Buffer>(fields[0])) return false;
    const auto type = fields[4].cast<DType>();
    std::byte* memory = fields[0].cast<Buffer&>().memory.get();
    value = View(memory + fields[3].cast<Size>() * static_cast<Size>(size_of(type)), type,
                 fields[1].cast<std::vector<Size>>(), fields[2].cast<std::vector<Size>>());
    return true;
  }
};

template <>
struct type_caster<Number> {
  PYBIND11_TYPE_CASTER(Number, const_name("float"));
  bool load(handle source, bool) {
    value.is_float = isinstance<float_>(source);
    if (value.is_float) {
      value.real = source.cast<double>();
    } else if (isinstance<int_>(source) || isinstance<bool_>(source)) {
      value.integer = source.cast<Size>();
    } else {
      return false;
    }
    return true;
  }
};

}  // namespace pybind11::detail
