// A View is a strided window on memory, the operand of every kernel. It owns nothing.
#pragma once

#include <cstdint>

#include "dtype.h"

namespace needle {

inline constexpr int kMaxDims = 16;  // config.MAX_DIMS in Python

struct View {
  void* data = nullptr;  // the first element: base address plus offset
  DType dtype = DType::kFloat32;
  int ndim = 0;
  std::int64_t shape[kMaxDims] = {};
  std::int64_t strides[kMaxDims] = {};  // in elements; may be 0 or negative
  int device = 0;                       // which of the backend's devices the memory is of
  bool is_scalar = false;               // data is a Python scalar's value, in host memory
};

static inline std::int64_t size_of(const View& v) {
  std::int64_t n = 1;
  for (int i = 0; i < v.ndim; ++i) n *= v.shape[i];
  return n;
}

// Row-major without gaps (axes of size 1 do not count).
static inline bool is_compact(const View& v) {
  std::int64_t expected = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    if (v.shape[i] == 0) return true;
    if (v.shape[i] != 1 && v.strides[i] != expected) return false;
    expected *= v.shape[i];
  }
  return true;
}

template <class T>
static inline T* data_of(const View& v) {
  return static_cast<T*>(v.data);
}

}  // namespace needle
