// The Python module needle.interrupts. uninterrupted(function) returns a callable during which no
// KeyboardInterrupt is raised. assigned(variable, value) is a context manager that a Ctrl-C cannot
// leave half done. needle.contexts explains what they are for.
#include <Python.h>
#include <pthread.h>
#include <structmember.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <initializer_list>
#ifdef __linux__
#include <sys/syscall.h>
#endif

namespace {

volatile std::sig_atomic_t arrived = 0;
struct sigaction former;
int deferrals = 0;  // nested ones of the main thread; guarded by the GIL

extern "C" void note(int) { arrived = 1; }

enum class Thread { kUnknown, kMain, kOther };
thread_local Thread this_thread = Thread::kUnknown;

extern "C" void after_fork() { this_thread = Thread::kUnknown; }

// Python runs signal handlers in the main thread only.
bool is_main_thread() {
  if (this_thread == Thread::kUnknown) {
#ifdef __linux__
    const bool is_main = syscall(SYS_gettid) == getpid();
#else
    const bool is_main = pthread_main_np() != 0;
#endif
    this_thread = is_main ? Thread::kMain : Thread::kOther;
  }
  return this_thread == Thread::kMain;
}

// Holds back SIGINT, whichever thread receives it, and delivers it at the end. Trace functions do
// not run meanwhile, because a debugger ends a program by raising an exception from one.
class Deferral {
 public:
  Deferral() : thread_(PyThreadState_Get()), active_(is_main_thread()) {
#if PY_VERSION_HEX >= 0x030B0000
    PyThreadState_EnterTracing(thread_);
#endif
    if (!active_ || deferrals++ != 0) return;
    struct sigaction noting = {};
    noting.sa_handler = note;
    noting.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaction(SIGINT, &noting, &former);
    pending_ = PyOS_InterruptOccurred() != 0;  // arrived, but its Python handler has not run yet
  }
  ~Deferral() {
#if PY_VERSION_HEX >= 0x030B0000
    PyThreadState_LeaveTracing(thread_);
#endif
    if (!active_ || --deferrals != 0) return;
    sigaction(SIGINT, &former, nullptr);
    if (arrived != 0) {
      arrived = 0;
      raise(SIGINT);
    }
    if (pending_) PyErr_SetInterrupt();
  }
  Deferral(const Deferral&) = delete;
  Deferral& operator=(const Deferral&) = delete;

 private:
  PyThreadState* thread_;
  bool active_, pending_ = false;
};

struct Uninterrupted {
  PyObject_HEAD PyObject* function;
  PyObject* attributes;  // those of the function
  vectorcallfunc call;
};

PyObject* call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
  const Deferral deferral;
  return PyObject_Vectorcall(reinterpret_cast<Uninterrupted*>(self)->function, arguments, count,
                             names);
}

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  const char* names[] = {"function", nullptr};
  PyObject* function = nullptr;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O:uninterrupted", const_cast<char**>(names),
                                  &function) == 0) {
    return nullptr;
  }
  auto* made = reinterpret_cast<Uninterrupted*>(type->tp_alloc(type, 0));
  if (made == nullptr) return nullptr;
  made->function = Py_NewRef(function);
  made->call = call;
  // Copies __wrapped__, __doc__, __name__, ... from the function, as decorators do.
  PyObject* functools = PyImport_ImportModule("functools");
  PyObject* updated = functools == nullptr
                          ? nullptr
                          : PyObject_CallMethod(functools, "update_wrapper", "OO", made, function);
  Py_XDECREF(functools);
  Py_DECREF(made);  // update_wrapper has returned another reference to it, or an error
  return updated;
}

// The garbage collector calls these for a type whose members refer to Python objects.
template <class Object, PyObject* Object::*... kMembers>
struct Collected {
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    int stopped = 0;
    for (PyObject* member : {reinterpret_cast<Object*>(self)->*kMembers...}) {
      if (member != nullptr && stopped == 0) stopped = visit(member, arg);
    }
    return stopped;
  }

  static int clear(PyObject* self) {
    const auto drop = [](PyObject*& member) { Py_CLEAR(member); };
    (drop(reinterpret_cast<Object*>(self)->*kMembers), ...);
    return 0;
  }

  static void destroy(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    type->tp_free(self);
    Py_DECREF(type);
  }
};

using CollectedCall =
    Collected<Uninterrupted, &Uninterrupted::function, &Uninterrupted::attributes>;

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self)
                                                    : PyMethod_New(self, instance);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Uninterrupted, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Uninterrupted, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(CollectedCall::destroy)},
    {Py_tp_traverse, reinterpret_cast<void*>(CollectedCall::traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(CollectedCall::clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, nullptr},
};

PyType_Spec spec = {"needle.interrupts.uninterrupted", sizeof(Uninterrupted), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                        Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};

// No Python code runs when this context manager is entered or left, so there is no signal to defer.
// It takes a tenth of the time of one whose methods are Python functions.
struct Assigned {
  PyObject_HEAD PyObject *variable, *value, *token;
};

PyObject* assigned_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  const char* names[] = {"variable", "value", nullptr};
  PyObject *variable = nullptr, *value = nullptr;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O:assigned", const_cast<char**>(names),
                                  &PyContextVar_Type, &variable, &value) == 0) {
    return nullptr;
  }
  auto* made = reinterpret_cast<Assigned*>(type->tp_alloc(type, 0));
  if (made == nullptr) return nullptr;
  made->variable = Py_NewRef(variable);
  made->value = Py_NewRef(value);
  return reinterpret_cast<PyObject*>(made);
}

PyObject* enter(PyObject* self, PyObject*) {
  auto* object = reinterpret_cast<Assigned*>(self);
  if (object->token != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "assigned: it is entered already; make another one");
    return nullptr;
  }
  object->token = PyContextVar_Set(object->variable, object->value);
  return object->token == nullptr ? nullptr : Py_NewRef(object->value);
}

PyObject* leave(PyObject* self, PyObject*) {
  auto* object = reinterpret_cast<Assigned*>(self);
  if (object->token == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "assigned: it is left before it is entered");
    return nullptr;
  }
  const int failed = PyContextVar_Reset(object->variable, object->token);
  Py_CLEAR(object->token);
  if (failed != 0) return nullptr;
  Py_RETURN_NONE;
}

using CollectedAssigned =
    Collected<Assigned, &Assigned::variable, &Assigned::value, &Assigned::token>;

// From Python 3.14 on, a Ctrl-C can be raised when __enter__ has returned, before the with block
// would call __exit__. Python then drops the object, as if it were a generator.
void assigned_destroy(PyObject* self) {
  auto* object = reinterpret_cast<Assigned*>(self);
  PyObject_GC_UnTrack(self);
  if (object->token != nullptr) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyContextVar_Reset(object->variable, object->token) != 0) {
      PyErr_WriteUnraisable(object->variable);
    }
    PyErr_Restore(type, value, traceback);
  }
  CollectedAssigned::destroy(self);
}

PyMethodDef assigned_methods[] = {
    {"__enter__", enter, METH_NOARGS, "Assign the value and return it."},
    {"__exit__", leave, METH_VARARGS, "Give the variable its former value."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot assigned_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(assigned_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(assigned_destroy)},
    {Py_tp_traverse, reinterpret_cast<void*>(CollectedAssigned::traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(CollectedAssigned::clear)},
    {Py_tp_methods, assigned_methods},
    {0, nullptr},
};

PyType_Spec assigned_spec = {"needle.interrupts.assigned", sizeof(Assigned), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, assigned_slots};

int fill(PyObject* module) {
  pthread_atfork(nullptr, nullptr, after_fork);
  for (PyType_Spec* each : {&spec, &assigned_spec}) {
    PyObject* type = PyType_FromSpec(each);
    if (type == nullptr) return -1;
    const int failed = PyModule_AddType(module, reinterpret_cast<PyTypeObject*>(type));
    Py_DECREF(type);
    if (failed != 0) return -1;
  }
  PyObject* is_main = PyInterpreterState_Get() == PyInterpreterState_Main() ? Py_True : Py_False;
  return PyModule_AddObjectRef(module, "main_interpreter", is_main);
}

PyModuleDef_Slot steps[] = {
    {Py_mod_exec, reinterpret_cast<void*>(fill)},
    {0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "interrupts",
                          "Calls that a Ctrl-C cannot interrupt; see needle.contexts.",
                          0,
                          nullptr,
                          steps,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_interrupts() { return PyModuleDef_Init(&definition); }
