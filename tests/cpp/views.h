// Views of a test's arrays.
#pragma once

#include <initializer_list>
#include <type_traits>
#include <utility>

#include "core/view.h"

namespace needle::testing {

template <class T>
constexpr DType dtype_of() {
#define NEEDLE_ROW(row, name, type, ...) \
  if (std::is_same_v<T, type>) return DType::row;
  NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  return DType::kFloat64;
}

// Returns a contiguous view of `shape` on `data`.
template <class T>
View compact(T* data, std::initializer_list<std::int64_t> shape) {
  View v{data, dtype_of<T>(), 0};
  for (std::int64_t n : shape) v.shape[v.ndim++] = n;
  std::int64_t stride = 1;
  for (int i = v.ndim - 1; i >= 0; --i) {
    v.strides[i] = stride;
    stride *= v.shape[i];
  }
  return v;
}

// Returns the same view with its last two axes exchanged.
inline View transposed(View v) {
  std::swap(v.shape[v.ndim - 1], v.shape[v.ndim - 2]);
  std::swap(v.strides[v.ndim - 1], v.strides[v.ndim - 2]);
  return v;
}

}  // namespace needle::testing
