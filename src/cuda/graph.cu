#include "graph.h"

namespace needle::cuda {

Graph::Graph(int device) : device_(device), memory_(device) {
  begin_recording(device);
  KeptMemory::keep_in(&memory_);
}

Graph::~Graph() {
  abandon();
  if (graph_ != nullptr) drop_graph(graph_);
}

void Graph::finish() {
  KeptMemory::keep_in(nullptr);
  recording_ = false;
  graph_ = end_recording();
}

void Graph::abandon() {
  if (!recording_) return;
  KeptMemory::keep_in(nullptr);
  recording_ = false;
  abandon_recording();
}

void Graph::launch() const {
  if (graph_ == nullptr) throw DeviceFailure("capture: this graph was not finished");
  launch_graph(device_, graph_);
}

}  // namespace needle::cuda
