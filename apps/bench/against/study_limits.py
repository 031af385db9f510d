"""Measure the machine's limits; the other studies report shares of them."""

from __future__ import annotations

from functools import partial

import numpy as np

from apps.bench.harness.case import Case, Numbers, Once
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range
from apps.bench.harness.turns import Result
from apps.profiling.limits import measure

from .sides import Needle
from .study import calls_of
from .study_matmul import product

TITLE = "The machine's limits"
KEYS = {
    "gflops": ("fused multiply-adds in float32", "GFLOP/s"),
    "gbs large": ("a[i] = b[i] + s c[i] on arrays of 34 MB", "GB/s"),
    "gbs small": ("the same on arrays of 1 MB", "GB/s"),
    "gbs huge": ("relu of an array of 537 MB", "GB/s"),
}


def cases(settings: Settings) -> list[Case]:
    """Return the only case, which measures the machine or its GPU."""

    def open_it(given: Settings) -> Once:
        if given.device != "cpu":
            return Once(lambda: of_device(given))
        return Once(lambda: measure(given.threads, given.pick(0.1, 1e-3)))

    return [Case("machine", open_it, settings.environment())]


def of_device(settings: Settings) -> Numbers:
    """Return the rates of a large product and of a pass over a large array on a device."""
    side, (n, count) = Needle(settings.device), settings.pick((4096, 1 << 27), (16, 1000))
    x = side.tensor(np.ones(count, np.float32))
    builds = {"product": partial(product, shape=(n, n, n)), "relu": lambda _: lambda: side.relu(x)}
    ms = calls_of(side, builds, settings.pick(0.2, 0.0)).run()
    return {"gflops": 2e-6 * n**3 / ms["product"], "gbs huge": 8e-6 * count / ms["relu"]}


def sentence(result: Result) -> str:
    """Return the median and the range of each limit, in a line of Markdown."""
    found = [
        f"{words} {median_and_range(result, 'machine', key)} {unit}"
        for key, (words, unit) in KEYS.items()
        if key in result.outcomes["machine"].values
    ]
    return f"- {result.study}: {'; '.join(found)}."


def targets(result: Result) -> list[Target]:
    return []
