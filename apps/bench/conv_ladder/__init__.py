"""A 3 x 3 convolution from its definition to the library's kernel, one idea per step."""
