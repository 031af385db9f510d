// WithoutGil releases the GIL for its lifetime; every binding that runs long code uses it.
#pragma once

#include <Python.h>

#include <chrono>
#include <thread>

namespace needle::bindings {

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  // Before 3.14, Python calls pthread_exit in a daemon thread that comes here after the program's
  // end, and glibc then unwinds the stack. Unwinding through a destructor would abort the program,
  // so the thread waits here for the process to end, as it does in 3.14 and later.
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      while (true) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace needle::bindings
