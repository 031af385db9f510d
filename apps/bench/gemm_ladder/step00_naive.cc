// Step 00: the definition. c[i, j] is the sum over p of a[i, p] * b[p, j], in three loops.
//
// It is slow for two reasons. Each addition waits for the one before: it takes about four cycles,
// in which the core could do dozens of others. And b is read down a column: every element is on a
// separate cache line, of which the other fifteen elements are not used.
#include "step.h"

void ladder::naive(const Product& x) { edge(x, 0, x.m, 0, x.n); }
