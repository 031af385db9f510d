// Kernels that are launched together: launches of a thread between the constructor of a Graph and
// finish() are recorded with their arguments instead of run; launch() runs all of them in that
// order. The time between two kernels then does not depend on the host. Made by needle.capture
// (bindings).
#pragma once

#include "allocator.h"
#include "device.h"

namespace needle::cuda {

class Graph {
 public:
  explicit Graph(int device);  // DeviceFailure where there can be none
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void finish();   // by the thread that made it, as abandon(); DeviceFailure where it is no graph
  void abandon();  // nothing was run
  // In the order of the device's stream. The buffers that the kernels were given must be there;
  // their own temporaries are the graph's.
  void launch() const;

 private:
  int device_;
  bool recording_ = true;
  cudaGraphExec_t graph_ = nullptr;
  KeptMemory memory_;
};

}  // namespace needle::cuda
