"""The roofline of this machine with some kernels.

The roofs come from apps/profiling/limits.py, or from a ladder that draws its steps.
``measured_kernels`` measures quickly; ``make ladder`` and ``make bench-against`` measure
accurately.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import needle

from .canvas import Picture, picture

WORDS = {"gbs large": "memory", "gbs small": "cache"}
"""The legend's words for names of ``apps.profiling.limits.measure``."""


@dataclass(frozen=True)
class Kernel:
    """A measured call: its operations, the minimum number of bytes it moves, and its seconds."""

    name: str
    operations: float
    moved: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.moved

    @property
    def rate(self) -> float:
        """10^9 operations per second."""
        return self.operations / self.seconds / 1e9


def measured_kernels(device: Any = None, seconds: float = 0.05) -> list[Kernel]:
    """Return measured kernels: elementwise, sum, matrix products and a convolution in float32.

    device: ``needle.default_device()`` by default. seconds: time for each kernel; its fastest call
    counts.
    """
    place = needle.device(device)

    def random(*shape: int) -> Any:
        return needle.init.randn(*shape, device=place)

    n = 1 << 22
    a, b = random(n), random(n)
    found = [
        Kernel("a + b", n, 12 * n, best_seconds(lambda: a + b, seconds)),
        Kernel("sum(a)", n, 4 * n, best_seconds(lambda: a.sum(), seconds)),
    ]
    for size in (32, 128, 512):
        x, y = random(size, size), random(size, size)
        took = best_seconds(lambda x=x, y=y: x @ y, seconds)  # type: ignore[misc]
        found.append(Kernel(f"matmul {size}", 2.0 * size**3, 12 * size**2, took))
    images, weight = random(16, 32, 32, 32), random(32, 32, 3, 3)
    took = best_seconds(lambda: needle.conv2d(images, weight, padding=1), seconds)
    moved = 4 * (2 * images.size + weight.size)
    return [*found, Kernel("conv2d 3x3", 2.0 * images.size * 32 * 9, moved, took)]


def best_seconds(call: Callable[[], Any], seconds: float) -> float:
    """Return the shortest time of all calls made within ``seconds``, after one warm-up call."""
    call()
    end, best = time.perf_counter() + seconds, float("inf")
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def draw_roofline(limits: dict[str, float], kernels: list[Kernel]) -> Picture:
    """Draw kernels by operations per byte and rate, with the arithmetic peak and the bandwidths.

    limits: the peak in GFLOP/s and then bandwidths in GB/s, by name, for example from
    ``apps.profiling.limits.measure``.
    """
    figure, axes = picture(8, 4.5)
    places = [min(k.intensity for k in kernels) / 2 * 2**i for i in range(14)]
    peak, *bandwidths = limits.values()
    for name, rate in zip([*limits][1:], bandwidths):
        roof = [min(peak, x * rate) for x in places]
        axes.plot(places, roof, "--", label=f"{WORDS.get(name, name)}: {rate:.3g} GB/s")
    axes.axhline(peak, color="black", label=f"peak: {peak:.3g} GFLOP/s")
    for i, kernel in enumerate(sorted(kernels, key=lambda each: each.intensity)):
        axes.plot(kernel.intensity, kernel.rate, "o", color="#cc3311")
        place, aside = (kernel.intensity, kernel.rate), (4, 8 if i % 2 else -12)
        axes.annotate(kernel.name, place, aside, textcoords="offset points", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s")
    axes.legend(fontsize=8)
    return figure
