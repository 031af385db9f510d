"""Runs the ladder of convolutions, prints its table and draws the roofline (make ladder).

The steps are the step*.cc beside this file; CMake builds them into one program. Rates count the
operations of the definition: Winograd's steps do fewer, and may pass the peak.
"""

from __future__ import annotations

from apps.bench.ladder import climb

IMAGES, SIDE = 8, 16
"""Of ladder.cc."""


def flops(channels: int) -> float:
    """Of a 3 x 3 convolution of the images, as many channels out as in."""
    return 2.0 * IMAGES * SIDE**2 * 9 * channels**2


if __name__ == "__main__":
    climb("conv_ladder", ("channels", 64, "of the images, in and out"), flops)
