// Vector types (a compiler extension) as wide as a register of the target's instruction set. Only
// loops that must hold several accumulators in registers use them; the compiler vectorises the
// rest.
#pragma once

#include <cstdint>
#include <cstring>

// Precedes a loop whose output may be the same memory as an operand, and tells the compiler that
// the iterations are independent.
#if defined(__clang__)
#define NEEDLE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define NEEDLE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace needle::simd {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
inline constexpr int kLanes = kVectorBytes / int(sizeof(T));

// Loads a V (a vector of T, or a single T) from p, which may have any alignment.
template <class V, class T>
[[gnu::always_inline]] static inline V get(const T* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class T>
[[gnu::always_inline]] static inline void put(T* p, V v) {
  std::memcpy(p, &v, sizeof v);
}
template <class T>
[[gnu::always_inline]] static inline Vector<T> load(const T* p) {
  return get<Vector<T>>(p);
}

}  // namespace needle::simd
