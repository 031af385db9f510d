// The dtype table: the rows of python/needle/dtypes.py in the same order; a test compares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "bfloat16.h"
#include "check.h"

namespace needle {

// Columns: enumerator, name, C++ type, the dtype in which elements are computed, and the format in
// Python's buffer protocol.
#define NEEDLE_DTYPES(ROW)                            \
  ROW(kBool, "bool", bool, kBool, "?")                \
  ROW(kUInt8, "uint8", std::uint8_t, kUInt8, "B")     \
  ROW(kInt32, "int32", std::int32_t, kInt32, "i")     \
  ROW(kInt64, "int64", std::int64_t, kInt64, "q")     \
  ROW(kBFloat16, "bfloat16", BFloat16, kFloat32, "H") \
  ROW(kFloat32, "float32", float, kFloat32, "f")      \
  ROW(kFloat64, "float64", double, kFloat64, "d")

enum class DType : std::uint8_t {
#define NEEDLE_ROW(row, ...) row,
  NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
#define NEEDLE_ROW(row, name, type, ...) \
  case DType::row: return sizeof(type);
    NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
#define NEEDLE_ROW(row, name, ...) \
  case DType::row: return name;
    NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
  return "?";
}

// Returns the dtype in which elements are computed (Computed). Scalar operands have it too.
constexpr DType computed(DType dtype) {
  switch (dtype) {
#define NEEDLE_ROW(row, name, type, compute, ...) \
  case DType::row: return DType::compute;
    NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
  return dtype;
}

constexpr bool is_storage(DType dtype) { return computed(dtype) != dtype; }

template <class T>
struct Tag {
  using type = T;
};

[[noreturn]] static inline void refuse_bfloat16() {
  raise_error("the kernel does not take bfloat16; convert its operands to float32");
}

// Calls f(Tag<T>{}) with the C++ type of `dtype`, which must not be a storage dtype. Static, so
// that objects compiled for different instruction sets share no copy of it.
template <class F>
static inline decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
#define NEEDLE_ROW(row, name, type, ...)                  \
  case DType::row:                                        \
    if constexpr (std::is_same_v<type, Computed<type>>) { \
      return f(Tag<type>{});                              \
    } else {                                              \
      refuse_bfloat16();                                  \
    }
    NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
  __builtin_unreachable();
}

// Calls f(Tag<T>{}) for the two floating dtypes; any other dtype is a bug of the caller.
template <class F>
static inline decltype(auto) with_float(DType dtype, F&& f) {
  if (dtype == DType::kFloat32) return f(Tag<float>{});
  if (dtype == DType::kBFloat16) refuse_bfloat16();
  return f(Tag<double>{});
}

// These two functions serve kernels that also take bfloat16.
template <class F>
static inline decltype(auto) with_stored_type(DType dtype, F&& f) {
  if (dtype == DType::kBFloat16) return f(Tag<BFloat16>{});
  return with_type(dtype, f);
}
template <class F>
static inline decltype(auto) with_stored_float(DType dtype, F&& f) {
  if (dtype == DType::kBFloat16) return f(Tag<BFloat16>{});
  return with_float(dtype, f);
}

// Calls f(Tag<Word>{}), where Word is the unsigned type of `bytes` bytes. Copies use it, because
// they depend only on the size of an element.
template <class F>
static inline decltype(auto) with_word(std::size_t bytes, F&& f) {
  if (bytes == 1) return f(Tag<std::uint8_t>{});
  if (bytes == 2) return f(Tag<std::uint16_t>{});
  if (bytes == 4) return f(Tag<std::uint32_t>{});
  return f(Tag<std::uint64_t>{});
}

}  // namespace needle
