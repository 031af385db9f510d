"""Who runs the native steps of a plan: executors, registered by the name of a device.

An executor takes the parameters already drawn (plan.py), so that every one of them gives the same
images. The CPU's is here; another device's module calls ``register_executor``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import native

Array = npt.NDArray[Any]


class Work(NamedTuple):
    """One run of native steps over n images.

    steps: names and constants. parameters: for each step float64 ``(n, k)``. images:
    ``(N, H, W, C)`` with rows ``indices`` (int64 ``(n,)``, or None for all), or a list of
    ``(H, W, C)``. out: ``(n, *row)``, to be filled. threads: 0 for all there are.
    """

    steps: Sequence[tuple[str, tuple[float, ...]]]
    parameters: Sequence[npt.NDArray[np.float64]]
    images: Array | list[Array]
    indices: npt.NDArray[np.int64] | None
    out: Array
    threads: int = 0


Executor = Callable[[Work], None]

_executors: dict[str, Executor] = {}


def register_executor(device: str, executor: Executor) -> None:
    """``executor`` runs the native steps for this device from now on."""
    _executors[device] = executor


def executor_for(device: str) -> Executor | None:
    """The device's executor; None where steps run by their definitions in NumPy."""
    if device == "cpu" and not native.has("run_images"):
        return None
    return _executors.get(device)


def _run_on_cpu(work: Work) -> None:
    native.run_images(
        work.steps, work.parameters, work.images, work.indices, work.out, work.threads
    )


register_executor("cpu", _run_on_cpu)
