// Conversion from Python to a kernel's arguments: one Caster per argument type takes one or more
// positional arguments. Every view is checked against its buffer, so no view from Python, however
// wrong, makes a kernel access memory out of bounds.
#pragma once

#include <Python.h>

#include <memory>
#include <vector>

#include "array_type.h"
#include "core/kernel_table.h"

namespace needle::bindings {

bool is_view(PyObject* object);                        // a tuple of five: base.View
View to_view(const char* function, PyObject* object);  // checked

// The arguments of one call, taken one after the other.
struct Arguments {
  const char* function;
  PyObject* const* values;
  Py_ssize_t count;
  Py_ssize_t taken = 0;
  int device = -1;  // of the first view

  PyObject* next() {
    if (taken == count) {
      raise(PyExc_TypeError,
            std::string(function) + ": too few arguments, got " + std::to_string(count));
    }
    return values[taken++];
  }
  View view(PyObject* object);  // checked as well: all views of a call are on one device
  View next_view() { return view(next()); }
};

std::int64_t to_int(const char* function, PyObject* object);
std::uint64_t to_word(const char* function, PyObject* object);  // an int in [0, 2**64)
double to_double(const char* function, PyObject* object);
bool to_bool(const char* function, PyObject* object);
Pair to_pair(const char* function, PyObject* object);
Geometry to_geometry(const char* function, PyObject* object);
// The names of the elementwise operations of one operand (elementwise_ops.h).
std::span<const char* const> unary_names();
// Returns the position of the name in `names`; the error lists them.
int to_row(const char* function, PyObject* object, const char* const* names, int count);

// A Python scalar in each representation that a kernel may take; a View of stride 0 can point to
// it.
struct ScalarValue {
  double floating = 0;
  std::int64_t integer = 0;
  alignas(8) unsigned char bytes[8] = {};

  View as_view(DType dtype, const View& like);  // refers to *this
};
ScalarValue to_scalar(const char* function, PyObject* object, DType dtype);

// ---- casters: `value` is what the kernel is called with ----

template <class T>
struct Caster;

template <>
struct Caster<const View&> {
  View value;
  explicit Caster(Arguments& from) : value(from.next_view()) {}
};
template <>
struct Caster<int> {
  int value;
  explicit Caster(Arguments& from) : value(int(to_int(from.function, from.next()))) {}
};
template <>
struct Caster<double> {
  double value;
  explicit Caster(Arguments& from) : value(to_double(from.function, from.next())) {}
};

template <>
struct Caster<UnaryOp> {
  UnaryOp value;
  explicit Caster(Arguments& from);
};
template <>
struct Caster<BinaryOp> {
  BinaryOp value;
  explicit Caster(Arguments& from);
};

template <class Op, const char* const* kNames, int kCount>
struct RowCaster {
  Op value;
  explicit RowCaster(Arguments& from)
      : value(static_cast<Op>(to_row(from.function, from.next(), kNames, kCount))) {}
};
template <>
struct Caster<ReduceOp> : RowCaster<ReduceOp, kReduceNames, int(std::size(kReduceNames))> {
  using RowCaster::RowCaster;
};

template <>
struct Caster<RandomOp> : RowCaster<RandomOp, kRandomNames, int(std::size(kRandomNames))> {
  using RowCaster::RowCaster;
};

template <>
struct Caster<const Pool2dParams&> {
  Pool2dParams value;
  explicit Caster(Arguments& from)
      : value{to_pair(from.function, from.next()), to_pair(from.function, from.next()),
              to_pair(from.function, from.next())} {}
};
template <>
struct Caster<const Geometry&> {
  Geometry value;
  explicit Caster(Arguments& from) : value(to_geometry(from.function, from.next())) {}
};

// Views that may be None. They are allocated separately, since a caster is moved.
struct MaybeViews {
  std::vector<std::unique_ptr<View>> views;
  const View* take(Arguments& from, PyObject* object);  // null for None
};
template <>
struct Caster<MaybeOut> : MaybeViews {
  MaybeOut value;
  explicit Caster(Arguments& from) : value(take(from, from.next())) {}
};
template <>
struct Caster<const Epilogue&> : MaybeViews {
  Epilogue value;
  explicit Caster(Arguments& from);
};
template <>
struct Caster<const EpilogueGrad&> : MaybeViews {
  EpilogueGrad value;
  explicit Caster(Arguments& from);
};

template <>
struct Caster<const RandomParams&> {
  RandomParams value;
  explicit Caster(Arguments& from)
      : value{to_word(from.function, from.next()), to_int(from.function, from.next()),
              to_double(from.function, from.next()), to_double(from.function, from.next())} {}
};
template <>
struct Caster<const SgdParams&> {
  SgdParams value;
  explicit Caster(Arguments& from)
      : value{to_double(from.function, from.next()), to_double(from.function, from.next()),
              to_double(from.function, from.next()), to_double(from.function, from.next()),
              to_bool(from.function, from.next())} {}
};
template <>
struct Caster<const AdamParams&> {
  AdamParams value;
  explicit Caster(Arguments& from)
      : value{to_double(from.function, from.next()), to_double(from.function, from.next()),
              to_double(from.function, from.next()), to_double(from.function, from.next()),
              to_double(from.function, from.next()), to_bool(from.function, from.next()),
              to_int(from.function, from.next())} {}
};
template <>
struct Caster<Views> {
  std::vector<View> views;
  Views value;
  explicit Caster(Arguments& from);
};

}  // namespace needle::bindings
