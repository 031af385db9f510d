"""The speed of a performance exercise, as shares of the library's kernel and the core's peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from apps.bench import ladder
from apps.bench.conv_ladder.__main__ import flops as conv_flops
from apps.bench.gemm_ladder.__main__ import flops as gemm_flops

from .building import FAST, LIBRARY, build_backend, built_backend, built_program
from .checking import environment_of
from .registry import Exercise

SIZES: dict[str, tuple[int, Callable[[int], float]]] = {
    "gemm_ladder": (960, gemm_flops),
    "conv_ladder": (64, conv_flops),
}
"""The timed size of each ladder, and the function for its number of operations."""
OWN_KERNEL = "07"
"""The step of gemm_ladder that is the library's kernel."""


@dataclass(frozen=True)
class Rate:
    """GFLOP/s on one core: the learner's code, the library's kernel, and the core's peak.

    cores: a larger number of cores that was tried, and how many times faster it was.
    """

    own: float
    reference: float
    peak: float
    cores: tuple[int, float] | None = None

    def __str__(self) -> str:
        line = (
            f"{self.own:6.1f} GFLOP/s, {self.own / self.reference:.0%} of the library's kernel, "
            f"{self.own / self.peak:.0%} of this core's peak"
        )
        return line + (f"; {self.cores[1]:.2g} times that on {self.cores[0]}" if self.cores else "")


def rate_of(root: Path, exercise: Exercise) -> Rate | str:
    """Return the rate of an exercise's code, or a string.

    The string is the rate of an exercise on a GPU, or the reason why no rate was measured.
    ``exercise.rate`` names a ladder and a step, such as "gemm_ladder 03", or the library of part 9.
    """
    name = exercise.rate.partition(" ")[0]
    try:
        return RATES.get(name, _rate_of_step)(root, exercise.rate)
    except (RuntimeError, subprocess.CalledProcessError) as error:  # a learner wrote the code
        return f"not timed: {error}"


def _rate_of_step(root: Path, rate: str) -> Rate:
    name, step = rate.split()
    program = built_program(root, name)
    if program is None:
        raise RuntimeError(f"{name} is not built")
    size, flops = SIZES[name]
    _, rows = ladder.run(program, size, 1, flops(size), step)
    own, reference = rows
    return Rate(own["gflops"], reference["gflops"], own["gflops"] / own["share"])


def _rate_of_library(root: Path, rate: str) -> Rate:
    """Return the rate of the library's product of two square matrices, on one core and on all."""
    print("compiling an optimised build for timing; about a minute", file=sys.stderr)
    program, problem = built_program(root, "gemm_ladder"), build_backend(root, FAST)
    if problem or program is None:
        raise RuntimeError(problem or "gemm_ladder is not built")
    size, flops = SIZES["gemm_ladder"]
    limits, (reference,) = ladder.run(program, size, 1, flops(size), OWN_KERNEL)
    cores = os.cpu_count() or 1
    one, all_of_them = (flops(size) / _seconds(root, size, n) / 1e9 for n in (1, cores))
    return Rate(one, reference["gflops"], limits["peak"], (cores, all_of_them / one))


def _rate_on_gpu(root: Path, rate: str) -> str:
    """Return the rate of a webgpu_ladder step, and that of the library's kernel on the adapter."""
    name, step = rate.split()
    command = [sys.executable, "-m", f"apps.bench.{name}", "--step", step]
    said = subprocess.check_output(command, cwd=root, env=environment_of(root, "np"), text=True)
    row = json.loads(said)
    share = row["own"] / row["reference"]
    return f"{row['own']:6.1f} GFLOP/s, {share:.0%} of the library's kernel, on {row['adapter']}"


RATES: dict[str, Callable[[Path, str], Rate | str]] = {
    LIBRARY: _rate_of_library,
    "webgpu_ladder": _rate_on_gpu,
}
"""Functions that time an exercise, by the first word of its ``rate``; others name a ladder."""


def _seconds(root: Path, size: int, threads: int) -> float:
    """Time a product in its own process, since OpenMP reads its thread count at the start."""
    module = built_backend(root, FAST)
    command = [sys.executable, "-m", "apps.course.product", str(module), str(size)]
    environment = {**environment_of(root, "np"), "OMP_NUM_THREADS": str(threads)}
    said = subprocess.check_output(command, cwd=root, env=environment, text=True)
    return float(said)
