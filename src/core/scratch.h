// A temporary buffer of a kernel: 64-byte aligned, uninitialised, freed at the end of the scope.
// Kernels use this instead of std::vector, whose inline code would be shared between objects
// compiled for different instruction sets.
#pragma once

#include <cstddef>

namespace needle {

class Scratch {
 public:
  explicit Scratch(std::size_t bytes);  // throws std::bad_alloc
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  [[gnu::always_inline]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

}  // namespace needle
