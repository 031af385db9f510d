// Temporary memory of a kernel: 64-byte aligned, uninitialised, freed at the end of the scope.
// Kernels use it instead of std::vector, whose inline code would be shared between objects compiled
// for different instruction sets.
#pragma once

#include <cstddef>

namespace needle {

class Scratch {  // from the system and back to it
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

// Temporary memory that the thread keeps for reuse. It serves kernels that are called once per
// image, for which a malloc of 100 kB of fresh pages would cost more than the work. Pieces are
// released in reverse order, as scopes are left.
class ThreadScratch {
 public:
  explicit ThreadScratch(std::size_t bytes);  // throws std::bad_alloc
  ~ThreadScratch();
  ThreadScratch(const ThreadScratch&) = delete;
  ThreadScratch& operator=(const ThreadScratch&) = delete;

  template <class T>
  [[gnu::always_inline]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  void* block_;  // the arena's state before
  std::size_t used_;
};

}  // namespace needle
