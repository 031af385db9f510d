"""Run the ladder of matrix products, print its table and draw the roofline (make ladder).

The steps are the files step*.cc in this folder; CMake builds them into one program.
"""

from __future__ import annotations

from apps.bench.ladder import climb


def flops(n: int) -> float:
    """Return the FLOPs of a product of n x n matrices."""
    return 2.0 * n**3


if __name__ == "__main__":
    climb("gemm_ladder", ("n", 960, "rows and columns of each matrix"), flops)
