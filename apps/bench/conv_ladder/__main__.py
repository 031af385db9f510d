"""Run the ladder of convolutions, print its table and draw the roofline (make ladder).

The steps are the files step*.cc in this folder; CMake builds them into one program. Rates count the
operations of the definition; Winograd's steps do fewer and may exceed the peak.
"""

from __future__ import annotations

from apps.bench.ladder import climb

IMAGES, SIDE = 8, 16
"""The images of ladder.cc."""


def flops(channels: int) -> float:
    """Return the FLOPs of a 3 x 3 convolution with as many output as input channels."""
    return 2.0 * IMAGES * SIDE**2 * 9 * channels**2


if __name__ == "__main__":
    climb("conv_ladder", ("channels", 64, "of the images, in and out"), flops)
