// The problem of every step of the ladder: c (m x n) = a (m x k) @ b (k x n), row-major and dense.
#pragma once

#include "../ladder.h"

namespace ladder {

struct Product {
  long m, n, k;
  const float *a, *b;
  float* c;
};

void naive(const Product& x);
void loop_order(const Product& x);
void cache_blocks(const Product& x);
void vectors(const Product& x);
void register_tile(const Product& x);
void packed_b(const Product& x);
void packed_both(const Product& x);
void production(const Product& x);

// Computes rows [i, i_end) and columns [j, j_end) of c by the definition, for the edges of steps
// whose tiles do not divide the shape.
inline void edge(const Product& x, long i, long i_end, long j_begin, long j_end) {
  for (; i < i_end; ++i) {
    for (long j = j_begin; j < j_end; ++j) {
      float sum = 0;
      for (long p = 0; p < x.k; ++p) sum += x.a[i * x.k + p] * x.b[p * x.n + j];
      x.c[i * x.n + j] = sum;
    }
  }
}

}  // namespace ladder
