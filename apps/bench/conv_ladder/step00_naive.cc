// Step 00: the definition. Each output is the sum of pixel times weight over nine taps and all
// input channels. This takes seven loops, and a test whether the tap lies inside the image.
//
// It is slow for the same reasons as the three loops of a matrix product: each addition waits for
// the one before, and the weights of one output channel lie a whole row of channels apart.
#include "step.h"

void ladder::naive(const Convolution& v) { edge(v, 0); }
