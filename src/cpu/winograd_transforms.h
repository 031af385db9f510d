// Winograd's F(4x4, 3x3) computes 4 x 4 outputs of a 3 x 3 convolution by 36 products, not 144:
//   Y = A^T ((G g G^T) * (B^T d B)) A,   d: 6 x 6 pixels, g: 3 x 3 weights.
// (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016.) This file has the
// one-dimensional steps, on vectors of channels. They interpolate polynomials at 0, a, -a, b, -b
// and infinity. A transform multiplies the rounding errors of the sums: by about 11 with the usual
// a = 1 and b = 2, and by 4.8 with the values below. No six points achieve less than 4.7. Each step
// is a chain of fused multiply-adds, which round once. The scale of a point is applied where it
// costs least: to the weights, and by the weight gradient to its results.
#pragma once

#include "gemm.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr int kTileSide = 4;              // of the output
constexpr int kSeenSide = kTileSide + 2;  // of the input
constexpr int kFrequencies = kSeenSide * kSeenSide;

constexpr double kA = 0.625, kB = 1.5, kA2 = kA * kA, kB2 = kB * kB;

// The scales of the points 0, +-a and +-b.
constexpr double kScale0 = 1 / (kA2 * kB2), kScaleA = 1 / (2 * kA2 * (kA2 - kB2)),
                 kScaleB = 1 / (2 * kB2 * (kB2 - kA2));

// B^T d
template <class T>
[[gnu::always_inline]] inline void input_step(const Vector<T> (&d)[6], Vector<T> (&v)[6]) {
  const Vector<T> even_a = d[4] - T(kB2) * d[2], odd_a = d[3] - T(kB2) * d[1];
  const Vector<T> even_b = d[4] - T(kA2) * d[2], odd_b = d[3] - T(kA2) * d[1];
  v[0] = T(kA2 * kB2) * d[0] + (d[4] - T(kA2 + kB2) * d[2]);
  v[1] = even_a + T(kA) * odd_a;
  v[2] = even_a - T(kA) * odd_a;
  v[3] = even_b + T(kB) * odd_b;
  v[4] = even_b - T(kB) * odd_b;
  v[5] = T(kA2 * kB2) * d[1] + (d[5] - T(kA2 + kB2) * d[3]);
}

// G g
template <class T>
[[gnu::always_inline]] inline void weight_step(const Vector<T> (&g)[3], Vector<T> (&u)[6]) {
  const Vector<T> even_a = T(kScaleA) * g[0] + T(kScaleA * kA2) * g[2];
  const Vector<T> even_b = T(kScaleB) * g[0] + T(kScaleB * kB2) * g[2];
  u[0] = T(kScale0) * g[0];
  u[1] = even_a + T(kScaleA * kA) * g[1];
  u[2] = even_a - T(kScaleA * kA) * g[1];
  u[3] = even_b + T(kScaleB * kB) * g[1];
  u[4] = even_b - T(kScaleB * kB) * g[1];
  u[5] = g[2];
}

// A^T m
template <class T>
[[gnu::always_inline]] inline void output_step(const Vector<T> (&m)[6], Vector<T> (&y)[4]) {
  const Vector<T> even_a = m[1] + m[2], odd_a = m[1] - m[2];
  const Vector<T> even_b = m[3] + m[4], odd_b = m[3] - m[4];
  y[0] = m[0] + (even_a + even_b);
  y[1] = T(kA) * odd_a + T(kB) * odd_b;
  y[2] = T(kA2) * even_a + T(kB2) * even_b;
  y[3] = T(kA * kA2) * odd_a + (T(kB * kB2) * odd_b + m[5]);
}

// The weight gradient is F(3x3, 4x4) at the same points. It has 3 x 3 outputs, and the gradient's 4
// x 4 pixels e take the place of the weights. Computes G e.
template <class T>
[[gnu::always_inline]] inline void gradient_step(const Vector<T> (&e)[4], Vector<T> (&u)[6]) {
  const Vector<T> even_a = e[0] + T(kA2) * e[2], odd_a = e[1] + T(kA2) * e[3];
  const Vector<T> even_b = e[0] + T(kB2) * e[2], odd_b = e[1] + T(kB2) * e[3];
  u[0] = e[0];
  u[1] = even_a + T(kA) * odd_a;
  u[2] = even_a - T(kA) * odd_a;
  u[3] = even_b + T(kB) * odd_b;
  u[4] = even_b - T(kB) * odd_b;
  u[5] = e[3];
}

// Computes A^T m of the weight gradient.
template <class T>
[[gnu::always_inline]] inline void weight_grad_step(const Vector<T> (&m)[6], Vector<T> (&y)[3]) {
  const Vector<T> even_a = m[1] + m[2], even_b = m[3] + m[4];
  y[0] = T(kScale0) * m[0] + T(kScaleA) * even_a + T(kScaleB) * even_b;
  y[1] = T(kScaleA * kA) * (m[1] - m[2]) + T(kScaleB * kB) * (m[3] - m[4]);
  y[2] = m[5] + T(kScaleA * kA2) * even_a + T(kScaleB * kB2) * even_b;
}

// Transforms along both dimensions: each column, then each row. `from(i, j)` returns element (i,
// j), `to(i, j, value)` stores one.
template <class T, int kIn, int kOut, void (*kStep)(const Vector<T> (&)[kIn], Vector<T> (&)[kOut]),
          class From, class To>
[[gnu::always_inline]] inline void both_ways(From from, To to) {
  Vector<T> half[kOut][kIn];
#pragma GCC unroll 6
  for (int j = 0; j < kIn; ++j) {
    Vector<T> column[kIn], result[kOut];
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) column[i] = from(i, j);
    kStep(column, result);
#pragma GCC unroll 6
    for (int i = 0; i < kOut; ++i) half[i][j] = result[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kOut; ++i) {
    Vector<T> result[kOut];
    kStep(half[i], result);
#pragma GCC unroll 6
    for (int j = 0; j < kOut; ++j) to(i, j, result[j]);
  }
}

// Loads elements [0, n) of a vector, `stride` apart in memory, and pads it with zeros.
template <class T>
[[gnu::always_inline]] inline Vector<T> load_part(const T* from, Index stride, Index n) {
  if (stride == 1 && n >= Blocking<T>::W) return load(from);
  T lanes[Blocking<T>::W] = {};
  for (Index e = 0; e < n && e < Blocking<T>::W; ++e) lanes[e] = from[e * stride];
  return load(lanes);
}

template <class T>
[[gnu::always_inline]] inline void store_part(const Vector<T>& v, T* to, Index stride, Index n) {
  if (stride == 1 && n >= Blocking<T>::W) return store<T>(to, v);
  T lanes[Blocking<T>::W];
  store<T>(lanes, v);
  for (Index e = 0; e < n && e < Blocking<T>::W; ++e) to[e * stride] = lanes[e];
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
