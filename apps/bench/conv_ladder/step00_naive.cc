// Step 00: the definition. Each output is the sum over nine taps and all input channels of pixel
// times weight, in seven loops, with a test whether the tap lies inside the image.
//
// It is slow for the same reasons as the three loops of a matrix product: each addition waits for
// the one before, and the weights of one output channel lie a whole row of channels apart.
#include "step.h"

void ladder::naive(const Convolution& v) { edge(v, 0); }
