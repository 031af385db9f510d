"""Who runs the native steps of a plan: executors, by the name of a device.

An executor takes the parameters already drawn (compile.py), so that all of them give the same
images. The CPU's is here, and that of every device whose backend has ``run_images``; others are
registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ... import backend_selection, backends
from ...errors import UnknownNameError
from ..samples import native_kernels as native

Array = npt.NDArray[Any]


class Work(NamedTuple):
    """One run of native steps over n images.

    steps: names and constants. parameters: for each step float64 ``(n, k)``. images:
    ``(N, H, W, C)`` with rows ``indices`` (int64 ``(n,)``, or None for all), or a list of
    ``(H, W, C)``. out: ``(n, *row)``, to be filled; a device's own may be given an array of the
    device. threads: 0 for all there are.
    """

    steps: Sequence[tuple[str, tuple[float, ...]]]
    parameters: Sequence[npt.NDArray[np.float64]]
    images: Array | list[Array]
    indices: npt.NDArray[np.int64] | None
    out: Any
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
    return _executors.get(device) or device_executor(device)


class DeviceExecutor:
    """Runs native steps on a device: one upload and one launch a batch."""

    def __init__(self, place: Any) -> None:
        self.place = place

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array of the device that ``Work.out`` may be."""
        return backend_selection.NDArray.make(shape, device=self.place, dtype=dtype)

    def __call__(self, work: Work) -> None:
        stays = isinstance(work.out, backend_selection.NDArray)
        out = work.out if stays else self.empty(work.out.shape, work.out.dtype)
        backend = self.place.backend
        backend.run_images(work.steps, work.parameters, work.images, work.indices, out._view)
        if not stays:
            work.out[...] = out.numpy()


def device_executor(device: str) -> DeviceExecutor | None:
    """That of a device whose backend augments images itself, else None."""
    place = _place(device)
    if place is None or not backends.provides(place.backend, "run_images"):
        return None
    return DeviceExecutor(place)


def pinning(device: str) -> Callable[[Any], Any] | None:
    """What lets the device read host memory by itself (``Backend.pin``), where that helps."""
    place = _place(device)
    if place is None or not backends.provides(place.backend, "pin"):
        return None
    pin: Callable[[Any], Any] = place.backend.pin
    return pin


def _place(device: str) -> Any | None:
    if backend_selection.BACKEND != "nd":
        return None
    try:
        place = backend_selection.device(device)
    except UnknownNameError:
        return None
    return place if place.enabled() else None


def _run_on_cpu(work: Work) -> None:
    native.run_images(
        work.steps, work.parameters, work.images, work.indices, work.out, work.threads
    )


register_executor("cpu", _run_on_cpu)
