// Step 00: the definition. c[i, j] is the sum over p of a[i, p] * b[p, j]; three loops say so.
//
// It is slow for two reasons. Each sum waits for itself: an addition takes about four cycles, and
// the next one needs its result, while the machine could do dozens meanwhile. And b is read down a
// column: every element is on a cache line of its own, of which the other fifteen are not used.
#include "step.h"

void ladder::naive(const Product& x) { edge(x, 0, x.m, 0, x.n); }
