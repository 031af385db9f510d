// Binds the kernel table to Python. Each row becomes one module function with the signature of
// python/needle/backends/base.py (without `self`), which accepts positional and keyword arguments.
// The names of the elementwise operations are bound too. The GIL is released while a kernel runs.
#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "core/kernel_rules.h"
#include "without_gil.h"

namespace needle::bindings {

const KernelTable& module_table();  // the table in use; each module defines its own

// ---- kernel calls ----

// A call of a kernel with converted arguments, which its rule has checked. Classes of calls are
// constructed from Arguments.
struct KernelCall {
  virtual ~KernelCall() = default;
  virtual std::vector<View*> views() = 0;  // in the order in which they were converted
  virtual void run() = 0;
};

template <class Argument>
void add_views(Caster<Argument>& caster, std::vector<View*>& found) {
  if constexpr (std::is_same_v<decltype(caster.value), View>) found.push_back(&caster.value);
  if constexpr (requires { caster.views; }) {
    for (View& view : caster.views) found.push_back(&view);
  }
}

template <class Kernel>
struct CallOf;
template <class... Args>
struct CallOf<void (*)(Args...)> : KernelCall {
  using Kernel = void (*)(Args...);
  std::tuple<Caster<Args>...> casters;
  Kernel (*kernel)();  // looked up at every run, because another instruction set may be selected

  CallOf(Arguments& from, Kernel rule, Kernel (*kernel)())
      : casters{Caster<Args>(from)...},  // braces evaluate from left to right
        kernel(kernel) {
    if (rule != nullptr) std::apply([&](auto&... caster) { rule(caster.value...); }, casters);
  }
  std::vector<View*> views() final {
    std::vector<View*> found;
    std::apply([&](auto&... caster) { (add_views(caster, found), ...); }, casters);
    return found;
  }
  void run() final {
    std::apply([&](auto&... caster) { kernel()(caster.value...); }, casters);
  }
};

// ---- module functions ----

// The Python signature of one function, derived from its declaration in kernel_table.h. "(In a, Out
// out)" gives the parameters a and out; a struct gives one parameter per field.
struct Signature {
  std::string function, doc;
  std::vector<PyObject*> names;  // interned str
  PyMethodDef definition = {};
  std::unique_ptr<KernelCall> (*prepare)(Arguments&) = nullptr;  // null if it is no kernel

  Signature(const char* function, std::string declaration, PyCFunction call);
  void add_to(PyObject* module);
  // Fills `ordered`, one entry per name, from positional and keyword values; throws PythonError.
  void order(PyObject* const* values, Py_ssize_t positional, PyObject* keywords,
             PyObject** ordered) const;
};

inline constexpr int kMaxArguments = 16;

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

  static Signature* bind(PyObject* module, const char* name, const char* declaration) {
    auto* made = new Signature(name, declaration,
                               reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&call)));
    signature = made;  // lives as long as the process, as the function object may
    made->add_to(module);
    return made;
  }
};

template <class Call>
PyObject* run_kernel(Arguments& from) {
  Call call(from);
  {
    WithoutGil released;
    call.run();
  }
  Py_RETURN_NONE;
}

// Binds a kernel so that prepare_calls accepts it too.
template <class Call>
void bind_kernel(PyObject* module, const char* name, const char* declaration) {
  Function<&run_kernel<Call>>::bind(module, name, declaration)->prepare =
      [](Arguments& from) -> std::unique_ptr<KernelCall> { return std::make_unique<Call>(from); };
}

void bind_backend(PyObject* module);  // the table's rows, `unary_names` and prepare_calls
PyObject* prepare_calls(Arguments& from);
// Returns the signature of a function of this module; null for any other object.
const Signature* signature_of(PyObject* function);

}  // namespace needle::bindings
