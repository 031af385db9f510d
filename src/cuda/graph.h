// Kernels launched as one: what a thread launches between the making of a Graph and finish() is
// recorded, with its arguments, and not run; launch() runs all of it in that order. A GPU's time
// between two kernels is then its own and not the host's. Made by needle.capture (bindings).
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
