// The compiler's vectors of one register of the instruction set being compiled for, for the few
// loops that must hold several accumulators in registers. Elsewhere plain loops vectorise.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Put before a loop whose output may be the same memory as an operand, element by element: the
// iterations are independent of each other.
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

// The value at p, of any alignment, as V: a vector of T, or one T.
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

// Stores a vector past the caches; p is aligned to vectors. end_stream() makes it visible to other
// threads.
template <class T>
[[gnu::always_inline]] static inline void stream(T* p, Vector<T> v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), reinterpret_cast<__m512i>(v));
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(v));
#else
  put(p, v);
#endif
}
[[maybe_unused]] static inline void end_stream() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

}  // namespace needle::simd
