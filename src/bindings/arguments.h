// Converts Python arguments to the arguments of a kernel. Each argument type has a Caster, which
// takes one or more positional arguments. Every view is checked against its buffer, so that no view
// from Python makes a kernel access memory out of bounds.
#pragma once

#include <Python.h>

#include <vector>

#include "array_type.h"
#include "core/kernel_table.h"

namespace needle::bindings {

bool is_view(PyObject* object);                        // a tuple of five: base.View
View to_view(const char* function, PyObject* object);  // checked

// Where a view lies in a buffer. The buffer of a prepared call (prepared_calls.cc) is known only
// when the call runs; `slot` is its number until then.
struct Place {
  const char* function;
  std::int64_t slot = 0, offset = 0;  // offset, low and high count elements
  __int128 low = 0, high = -1;        // the first and last element; high < low if there is none
  View* view = nullptr;

  // Points `v` at its place in the buffer, plus `shift` elements. Throws PythonError if the buffer
  // is no Array of the view's dtype, or too small.
  void put(View& v, PyObject* handle, std::int64_t shift) const;
};

// The arguments of one call; next() takes them one after the other.
struct Arguments {
  const char* function;
  PyObject* const* values;
  Py_ssize_t count;
  Py_ssize_t taken = 0;
  int device = -1;                       // of the first view
  std::vector<Place>* places = nullptr;  // of a call that is prepared: its views have no buffer yet

  PyObject* next() {
    if (taken == count) {
      raise(PyExc_TypeError,
            std::string(function) + ": too few arguments, got " + std::to_string(count));
    }
    return values[taken++];
  }
  // Takes the next argument, a tuple of `size` items, and returns its items. The error says that
  // `what` was expected.
  Arguments next_items(int size, const char* what);
  View view(PyObject* object);  // checked as well: all views of a call are on one device
  View next_view() { return view(next()); }
};

// The names of the elementwise operations with one operand (elementwise_ops.h).
std::span<const char* const> unary_names();

// A Python scalar in each representation that a kernel may take. as_view() returns a View of stride
// 0 that points to this object.
struct ScalarValue {
  double floating = 0;
  std::int64_t integer = 0;
  alignas(8) unsigned char bytes[8] = {};

  View as_view(DType dtype, const View& like);  // refers to *this
};
ScalarValue to_scalar(const char* function, PyObject* object, DType dtype);

// ---- take: one argument, or those of a struct's fields ----

void take(Arguments& from, View& value);
void take(Arguments& from, bool& value);
void take(Arguments& from, int& value);
void take(Arguments& from, std::int64_t& value);
void take(Arguments& from, std::uint64_t& value);
void take(Arguments& from, double& value);
void take(Arguments& from, Pair& value);
void take(Arguments& from, UnaryOp& value);
void take(Arguments& from, BinaryOp& value);
void take(Arguments& from, ReduceOp& value);
void take(Arguments& from, RandomOp& value);
void take(Arguments& from, Geometry& value);
void take(Arguments& from, Pool2dParams& value);
void take(Arguments& from, RandomParams& value);
void take(Arguments& from, SgdParams& value);
void take(Arguments& from, AdamParams& value);

template <class... Values>
void take_all(Arguments& from, Values&... values) {
  (take(from, values), ...);
}

// ---- casters: `value` is what the kernel is called with ----

template <class Argument>
struct Caster {
  std::remove_cvref_t<Argument> value{};
  explicit Caster(Arguments& from) { take(from, value); }
};

// Views that may be None. They are on the heap, so that pointers to them stay valid when a caster
// is moved.
struct MaybeViews {
  static constexpr std::size_t kMost = 3;  // the fields of an EpilogueGrad
  std::vector<View> views;
  const View* keep(Arguments& from, PyObject* object);  // null for None
};
template <>
struct Caster<MaybeOut> : MaybeViews {
  MaybeOut value;
  explicit Caster(Arguments& from) : value(keep(from, from.next())) {}
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
struct Caster<Views> {
  std::vector<View> views;
  Views value;
  explicit Caster(Arguments& from);
};

}  // namespace needle::bindings
