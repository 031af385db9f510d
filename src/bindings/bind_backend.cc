#include "bind_backend.h"

#include <algorithm>
#include <sstream>

namespace needle::bindings {
namespace {

// Maps C++ parameters to the names that Python uses. An operation is called `name`, a struct is
// passed as separate fields, and fill has a single value of either type.
struct Expansion {
  const char *declared, *python;
};
constexpr Expansion kExpansions[] = {
    {"UnaryOp op", "name"},
    {"BinaryOp op", "name"},
    {"ReduceOp op", "name"},
    {"RandomOp op", "name"},
    {"std::int64_t integer", ""},
    {"const Pool2dParams& params", "kernel stride padding"},
    {"const RandomParams& settings", "seed draw a b"},
    {"const SgdParams& settings", "lr momentum dampening weight_decay nesterov"},
    {"const AdamParams& settings", "lr beta1 beta2 eps weight_decay decoupled step"},
};

std::string python_names(const std::string& parameter) {
  for (const Expansion& e : kExpansions) {
    if (parameter == e.declared) return e.python;
  }
  return parameter.substr(parameter.find_last_of(' ') + 1);
}

// Splits the declaration at the commas and returns the Python names of its parameters.
std::vector<std::string> parameter_names(const std::string& declaration) {
  std::istringstream parameters(declaration.substr(1, declaration.size() - 2));
  std::vector<std::string> names;
  for (std::string parameter; std::getline(parameters, parameter, ',');) {
    std::istringstream expanded(python_names(parameter.substr(parameter.find_first_not_of(' '))));
    for (std::string name; expanded >> name;) names.push_back(name);
  }
  return names;
}

std::vector<Signature*> signatures;  // of this module

void bind_unary_names(PyObject* module) {
  const auto names = unary_names();
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(names.size()));
  if (tuple == nullptr) throw PythonError{};
  for (std::size_t i = 0; i < names.size(); ++i) {
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyUnicode_InternFromString(names[i]));
  }
  if (PyModule_AddObject(module, "unary_names", tuple) != 0) {
    Py_DECREF(tuple);
    throw PythonError{};
  }
}

}  // namespace

Signature::Signature(const char* function, std::string declaration, PyCFunction call)
    : function(function) {
  doc = this->function + "(";
  for (const std::string& name : parameter_names(declaration)) {
    doc += (names.empty() ? "" : ", ") + name;
    names.push_back(PyUnicode_InternFromString(name.c_str()));
  }
  doc += ")\n--\n\nThe kernel of Backend." + this->function + "; see needle.backends.base.";
  definition = {this->function.c_str(), call, METH_FASTCALL | METH_KEYWORDS, doc.c_str()};
  signatures.push_back(this);
}

const Signature* signature_of(PyObject* function) {
  if (!PyCFunction_Check(function)) return nullptr;
  const PyCFunction call = PyCFunction_GET_FUNCTION(function);
  const auto found =
      std::ranges::find(signatures, call, [](Signature* s) { return s->definition.ml_meth; });
  return found == signatures.end() ? nullptr : *found;
}

void Signature::add_to(PyObject* module) {
  PyObject* made = PyCFunction_NewEx(&definition, nullptr, nullptr);
  if (made == nullptr || PyModule_AddObject(module, function.c_str(), made) != 0) {
    Py_XDECREF(made);
    throw PythonError{};
  }
}

void Signature::order(PyObject* const* values, Py_ssize_t positional, PyObject* keywords,
                      PyObject** ordered) const {
  const Py_ssize_t wanted = static_cast<Py_ssize_t>(names.size());
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  if (positional + named != wanted) {
    raise(PyExc_TypeError, function + ": takes " + std::to_string(wanted) + " arguments, got " +
                               std::to_string(positional + named));
  }
  std::fill_n(ordered, wanted, nullptr);
  std::copy_n(values, positional, ordered);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(keywords, i);
    const auto same = [&](PyObject* name) { return PyUnicode_Compare(name, keyword) == 0; };
    const auto found = std::find_if(names.begin(), names.end(), same);
    if (found == names.end() || ordered[found - names.begin()] != nullptr) {
      const char* text = PyUnicode_AsUTF8(keyword);
      raise(PyExc_TypeError, function + ": no argument, or a second one, is named '" +
                                 (text == nullptr ? "?" : text) + "'");
    }
    ordered[found - names.begin()] = values[positional + i];
  }
}

namespace {

// The general row, and the three whose operands may be Python scalars.
template <auto kRow>
using KernelOf = std::remove_cvref_t<decltype(std::declval<KernelTable>().*kRow)>;

template <auto kRow>
struct RowCall final : CallOf<KernelOf<kRow>> {
  explicit RowCall(Arguments& from)
      : CallOf<KernelOf<kRow>>(from, kernel_rules().*kRow, [] { return module_table().*kRow; }) {}
};

template <>
struct RowCall<&KernelTable::fill> final : KernelCall {
  View out;
  ScalarValue value;

  explicit RowCall(Arguments& from)
      : out(from.next_view()), value(to_scalar(from.function, from.next(), out.dtype)) {}
  std::vector<View*> views() final { return {&out}; }
  void run() final { module_table().fill(out, value.floating, value.integer); }
};

// Returns the views that are not scalars.
std::vector<View*> without_scalars(std::vector<View*> operands) {
  std::erase_if(operands, [](const View* v) { return v->is_scalar; });
  return operands;
}

template <>
struct RowCall<&KernelTable::binary> final : KernelCall {
  BinaryOp op;
  View out, x, y;
  ScalarValue scalar;

  explicit RowCall(Arguments& from) {
    take(from, op);
    PyObject *a = from.next(), *b = from.next();
    out = from.next_view();
    if (is_view(a)) x = from.view(a);
    if (is_view(b) || !is_view(a)) y = from.view(b);  // one view at least
    if (!is_view(b)) {
      scalar = to_scalar(from.function, b, x.dtype);
      y = scalar.as_view(x.dtype, out);
    } else if (!is_view(a)) {
      scalar = to_scalar(from.function, a, y.dtype);
      x = scalar.as_view(y.dtype, out);
    }
  }
  std::vector<View*> views() final { return without_scalars({&out, &x, &y}); }
  void run() final { module_table().binary(op, x, y, out); }
};

template <>
struct RowCall<&KernelTable::where> final : KernelCall {
  View condition, out, x, y;
  ScalarValue scalars[2];

  explicit RowCall(Arguments& from) : condition(from.next_view()) {
    PyObject *a = from.next(), *b = from.next();
    out = from.next_view();
    const auto operand = [&](PyObject* object, ScalarValue& scalar) {
      if (is_view(object)) return from.view(object);
      scalar = to_scalar(from.function, object, out.dtype);
      return scalar.as_view(out.dtype, out);
    };
    x = operand(a, scalars[0]), y = operand(b, scalars[1]);
  }
  std::vector<View*> views() final { return without_scalars({&condition, &out, &x, &y}); }
  void run() final { module_table().where(condition, x, y, out); }
};

}  // namespace

void bind_backend(PyObject* module) {
  bind_unary_names(module);
#define NEEDLE_ROW(name, arguments) \
  bind_kernel<RowCall<&KernelTable::name>>(module, #name, #arguments);
  NEEDLE_KERNELS(NEEDLE_ROW)
#undef NEEDLE_ROW
  Function<&prepare_calls>::bind(module, "prepare_calls", "(Calls calls)");
}

}  // namespace needle::bindings
