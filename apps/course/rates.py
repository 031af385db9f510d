"""How fast a performance exercise is: beside the library's own kernel and this core's peak."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from apps.bench import ladder
from apps.bench.conv_ladder.__main__ import flops as conv_flops
from apps.bench.gemm_ladder.__main__ import flops as gemm_flops

from .building import built_program
from .registry import Exercise

SIZES: dict[str, tuple[int, Callable[[int], float]]] = {
    "gemm_ladder": (960, gemm_flops),
    "conv_ladder": (64, conv_flops),
}
"""Ladder -> the size that is timed, and what it costs in operations."""


def rate_line(root: Path, exercise: Exercise) -> str:
    """One line: operations a second, as shares of the library's kernel and of the peak.

    ``exercise.rate`` names ladder and step, such as "gemm_ladder 03"; both run on one core.
    """
    name, step = exercise.rate.split()
    program = built_program(root, name)
    if program is None:
        return f"{exercise.tag:<22} not built"
    size, flops = SIZES[name]
    _, rows = ladder.run(program, size, 1, flops(size), step)
    own, reference = rows
    share = own["gflops"] / reference["gflops"]
    return (
        f"{exercise.tag:<22} {own['gflops']:6.1f} GFLOP/s, {share:.0%} of the library's kernel, "
        f"{own['share']:.0%} of this core's peak"
    )
