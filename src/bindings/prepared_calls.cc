// Prepared calls: a list of kernel calls whose arguments are converted and checked once. Running it
// returns to Python only at its end. needle.capture prepares the calls of a segment and runs them
// with the buffers of each replay; Backend.prepare_calls describes the interface.
#include <chrono>

#include "bind_backend.h"

namespace needle::bindings {
namespace {

using Clock = std::chrono::steady_clock;

// After this time, Python's signal handlers may run between two kernels, so that a Ctrl-C need not
// wait for the end of a long list.
constexpr auto kUninterrupted = std::chrono::milliseconds(20);

struct PreparedCalls {
  std::vector<std::unique_ptr<KernelCall>> calls;
  std::vector<Place> places;
  bool running = false;

  void add(const Signature& signature, PyObject* values) {
    if (!PyTuple_Check(values) ||
        PyTuple_GET_SIZE(values) != static_cast<Py_ssize_t>(signature.names.size())) {
      raise(PyExc_TypeError, signature.function + ": the arguments must be a complete tuple");
    }
    Arguments from{signature.function.c_str(), PySequence_Fast_ITEMS(values),
                   PyTuple_GET_SIZE(values)};
    from.places = &places;
    std::size_t next = places.size();
    calls.push_back(signature.prepare(from));
    const std::vector<View*> views = calls.back()->views();
    if (views.size() != places.size() - next) {
      raise(PyExc_SystemError, signature.function + ": a prepared call must list all its views");
    }
    for (View* view : views) places[next++].view = view;
  }

  // Points the views at the buffers. `buffers` is a tuple of pairs (handle, shift).
  void bind(PyObject* buffers) {
    int device = -1;
    for (const Place& place : places) {
      const bool exists =
          PyTuple_Check(buffers) && place.slot >= 0 && place.slot < PyTuple_GET_SIZE(buffers);
      PyObject* pair = exists ? PyTuple_GET_ITEM(buffers, place.slot) : nullptr;
      if (pair == nullptr || !PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        raise(PyExc_TypeError, "prepare_calls: the buffers must be a tuple of (handle, shift)");
      }
      const std::int64_t shift = PyLong_AsLongLong(PyTuple_GET_ITEM(pair, 1));
      if (shift == -1 && PyErr_Occurred() != nullptr) throw PythonError{};
      place.put(*place.view, PyTuple_GET_ITEM(pair, 0), shift);
      if (device >= 0 && place.view->device != device) {
        raise(PyExc_ValueError, "prepare_calls: the buffers must be on one device");
      }
      device = place.view->device;
    }
  }

  void run() {
    for (std::size_t next = 0; next < calls.size();) {
      {
        WithoutGil released;
        const auto start = Clock::now();
        do calls[next++]->run();
        while (next < calls.size() && Clock::now() - start < kUninterrupted);
      }
      if (PyErr_CheckSignals() != 0) throw PythonError{};
    }
  }
};

PreparedCalls* prepared_in(PyObject* capsule) {
  return static_cast<PreparedCalls*>(PyCapsule_GetPointer(capsule, nullptr));
}

// `buffers` is a tuple, which keeps the buffers alive meanwhile.
PyObject* run(PyObject* self, PyObject* buffers) {
  return guarded([&]() -> PyObject* {
    PreparedCalls& prepared = *prepared_in(self);
    if (prepared.running) {
      raise(PyExc_RuntimeError, "prepare_calls: the calls are running already; use a lock");
    }
    struct Running {
      bool& flag;
      explicit Running(bool& flag) : flag(flag) { flag = true; }
      ~Running() { flag = false; }
    } running(prepared.running);
    prepared.bind(buffers);
    prepared.run();
    Py_RETURN_NONE;
  });
}

PyMethodDef run_definition = {"run", run, METH_O, "Run the calls on (handle, shift) pairs."};

}  // namespace

PyObject* prepare_calls(Arguments& from) {
  PyObject* list = from.next();
  if (!PyList_Check(list)) raise(PyExc_TypeError, "prepare_calls: calls must be a list");
  auto prepared = std::make_unique<PreparedCalls>();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* call = PyList_GET_ITEM(list, i);
    if (!PyTuple_Check(call) || PyTuple_GET_SIZE(call) != 2) {
      raise(PyExc_TypeError, "prepare_calls: a call must be a tuple (kernel, arguments)");
    }
    const Signature* signature = signature_of(PyTuple_GET_ITEM(call, 0));
    if (signature == nullptr || signature->prepare == nullptr) Py_RETURN_NONE;
    prepared->add(*signature, PyTuple_GET_ITEM(call, 1));
  }
  PyObject* capsule = PyCapsule_New(prepared.get(), nullptr,
                                    [](PyObject* capsule) { delete prepared_in(capsule); });
  if (capsule == nullptr) throw PythonError{};
  prepared.release();  // the capsule owns it now
  PyObject* function = PyCFunction_NewEx(&run_definition, capsule, nullptr);
  Py_DECREF(capsule);
  if (function == nullptr) throw PythonError{};
  return function;
}

}  // namespace needle::bindings
