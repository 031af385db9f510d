// Step 00: the definition. Each output is the sum over nine taps and all input channels of what the
// tap sees times its weight; seven loops say so, and one question: does the tap see the image?
//
// It is slow as three loops of a matrix product are: each sum waits for itself, and the weights of
// one output channel lie a whole row of channels apart.
#include "step.h"

void ladder::naive(const Convolution& v) { edge(v, 0); }
