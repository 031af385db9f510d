// The dtype table: the rows of python/needle/dtypes.py, in the same order with the same codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bfloat16.h"
#include "check.h"

namespace needle {

//            row   name       C++ type      code
#define NEEDLE_DTYPES(ROW)              \
  ROW(kBool, "bool", bool, 0)           \
  ROW(kUInt8, "uint8", std::uint8_t, 1) \
  ROW(kInt32, "int32", std::int32_t, 2) \
  ROW(kInt64, "int64", std::int64_t, 3) \
  ROW(kFloat32, "float32", float, 4)    \
  ROW(kFloat64, "float64", double, 5)   \
  ROW(kBFloat16, "bfloat16", BFloat16, 6)

enum class DType : std::uint8_t {
#define NEEDLE_ROW(row, name, type, code) row = code,
  NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
#define NEEDLE_ROW(row, name, type, code) \
  case DType::row: return sizeof(type);
    NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
  return 0;
}

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
#define NEEDLE_ROW(row, name, type, code) \
  case DType::row: return name;
    NEEDLE_DTYPES(NEEDLE_ROW)
#undef NEEDLE_ROW
  }
  return "?";
}

// Returns the dtype in which elements are computed (Computed); a scalar operand has it too.
constexpr DType computed(DType dtype) {
  return dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

template <class T>
struct Tag {
  using type = T;
};

[[noreturn]] static inline void refuse_bfloat16() {
  raise_error("the kernel does not take bfloat16; convert its operands to float32");
}

// Calls f(Tag<T>{}) with the C++ type of `dtype`. Static, so that objects compiled for different
// instruction sets share no copy of it.
template <class F>
static inline decltype(auto) with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBool: return f(Tag<bool>{});
    case DType::kUInt8: return f(Tag<std::uint8_t>{});
    case DType::kInt32: return f(Tag<std::int32_t>{});
    case DType::kInt64: return f(Tag<std::int64_t>{});
    case DType::kFloat32: return f(Tag<float>{});
    case DType::kFloat64: break;
    case DType::kBFloat16: refuse_bfloat16();
  }
  return f(Tag<double>{});
}

// The same for the two floating dtypes; any other dtype is a bug of the caller.
template <class F>
static inline decltype(auto) with_float(DType dtype, F&& f) {
  if (dtype == DType::kFloat32) return f(Tag<float>{});
  if (dtype == DType::kBFloat16) refuse_bfloat16();
  return f(Tag<double>{});
}

// Both functions for kernels that also take bfloat16.
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

}  // namespace needle
