// A CUDA graph of kernels: a thread's launches between the constructor of a Graph and finish() are
// recorded with their arguments instead of run; launch() runs all of them in that order. Gaps
// between kernels then do not depend on the host. needle.capture makes graphs through the bindings.
#pragma once

#include "allocator.h"
#include "device.h"

namespace needle::cuda {

class Graph {
 public:
  explicit Graph(int device);  // DeviceFailure if graphs are not supported
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void finish();   // by the recording thread, as abandon(); DeviceFailure if recording failed
  void abandon();  // discards the recording; nothing was run
  // Launches in the order of the device's stream. The buffers that the kernels were given must
  // still exist; the graph owns the temporaries.
  void launch() const;

 private:
  int device_;
  bool recording_ = true;
  cudaGraphExec_t graph_ = nullptr;
  KeptMemory memory_;
};

}  // namespace needle::cuda
