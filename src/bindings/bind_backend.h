// Binds a KernelTable to Python. Each row becomes one module function with the signature of
// python/needle/backends/base.py (without `self`), which accepts positional and keyword arguments.
// The names of the elementwise operations are bound too. The GIL is released while a kernel runs.
// Device::table() returns the table in use.
#pragma once

#include <Python.h>

#include <string>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "core/kernel_rules.h"
#include "without_gil.h"

namespace needle::bindings {

// The Python signature of one row, derived from its declaration in kernel_table.h. "(In a, Out
// out)" gives the parameters a and out; a struct gives one parameter per field.
struct Signature {
  std::string function, doc;
  std::vector<PyObject*> names;  // interned str
  PyMethodDef definition = {};

  Signature(const char* function, std::string declaration, PyCFunction call);
  void add_to(PyObject* module);
  // Fills `ordered`, one entry per name, from positional and keyword values; throws PythonError.
  void order(PyObject* const* values, Py_ssize_t positional, PyObject* keywords,
             PyObject** ordered) const;
};

inline constexpr int kMaxArguments = 16;

// ---- calls: the general row, and the three whose operands may be Python scalars ----

template <class... Args>
void call_kernel(void (*rule)(Args...), void (*kernel)(Args...), Arguments& from) {
  std::tuple<Caster<Args>...> casters{Caster<Args>(from)...};  // braces evaluate from left to right
  if (rule != nullptr) std::apply([&](auto&... caster) { rule(caster.value...); }, casters);
  WithoutGil released;
  std::apply([&](auto&... caster) { kernel(caster.value...); }, casters);
}

template <auto kRow>
void call_row(const KernelTable& table, Arguments& from) {
  call_kernel(kernel_rules().*kRow, table.*kRow, from);
}
template <>
void call_row<&KernelTable::fill>(const KernelTable& table, Arguments& from);
template <>
void call_row<&KernelTable::binary>(const KernelTable& table, Arguments& from);
template <>
void call_row<&KernelTable::where>(const KernelTable& table, Arguments& from);

// A module function. It puts the Python arguments in the order of the declaration and passes them
// to kFunction.
template <PyObject* (*kFunction)(Arguments&)>
struct Function {
  static inline const Signature* signature = nullptr;

  static PyObject* call(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* keywords) {
    return guarded([&]() -> PyObject* {
      const Py_ssize_t wanted = static_cast<Py_ssize_t>(signature->names.size());
      PyObject* ordered[kMaxArguments];
      if (count != wanted || keywords != nullptr) {
        signature->order(values, count, keywords, ordered);
        values = ordered;
      }
      Arguments from{signature->function.c_str(), values, wanted};
      return kFunction(from);
    });
  }

  static void bind(PyObject* module, const char* name, const char* declaration) {
    auto* made = new Signature(name, declaration,
                               reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call)));
    signature = made;  // lives as long as the process, as the function object may
    made->add_to(module);
  }
};

template <class Device, auto kRow>
PyObject* run_row(Arguments& from) {
  call_row<kRow>(Device::table(), from);
  Py_RETURN_NONE;
}

// Adds the tuple `unary_names` to the module.
void bind_unary_names(PyObject* module);

template <class Device>
void bind_backend(PyObject* module) {
  bind_unary_names(module);
#define NEEDLE_ROW(name, arguments) \
  Function<&run_row<Device, &KernelTable::name>>::bind(module, #name, #arguments);
  NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW
}

}  // namespace needle::bindings
