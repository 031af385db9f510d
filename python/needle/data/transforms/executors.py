"""Executors: the functions that run native steps on a device.

An executor takes parameters that are already drawn (execute.py), so all devices give the same
images. There is one for the CPU and one for every device whose backend has ``run_images``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ... import array_namespace, backends
from ...errors import UnknownNameError
from ..samples import native_kernels

Array = npt.NDArray[Any]


class Executor(Protocol):
    """Runs native steps over a batch of images; the CPU's is ``native_kernels.run_images``.

    steps: names and constants. parameters: for each step float64 ``(n, k)``. images:
    ``(N, H, W, C)`` with rows ``indices`` (int64 ``(n,)``, or None for all), or a list of
    ``(H, W, C)``. out: ``(n, *row)``, to be filled; for a device also an array of that device.
    threads: 0 for all, 1 for the calling one.
    """

    def __call__(
        self,
        steps: Sequence[tuple[str, tuple[float, ...]]],
        parameters: Sequence[npt.NDArray[np.float64]],
        images: Array | list[Array],
        indices: npt.NDArray[np.int64] | None,
        out: Any,
        threads: int,
    ) -> None: ...


def executor_for(device: str) -> Executor | None:
    """Return the executor of a device; None where the steps run by their definitions in NumPy."""
    if device != "cpu":
        return device_executor(device)
    return native_kernels.run_images if native_kernels.has("run_images") else None


class DeviceExecutor:
    """Runs native steps on a device: one upload and one launch a batch."""

    def __init__(self, place: Any) -> None:
        self.place = place

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised array on the device."""
        return array_namespace.NDArray.make(shape, device=self.place, dtype=dtype)

    def __call__(
        self,
        steps: Sequence[tuple[str, tuple[float, ...]]],
        parameters: Sequence[npt.NDArray[np.float64]],
        images: Array | list[Array],
        indices: npt.NDArray[np.int64] | None,
        out: Any,
        threads: int,
    ) -> None:
        stays = isinstance(out, array_namespace.NDArray)
        made = out if stays else self.empty(out.shape, out.dtype)
        self.place.backend.run_images(steps, parameters, images, indices, made.view)
        if not stays:
            out[...] = made.numpy()


def device_executor(device: str) -> DeviceExecutor | None:
    """Return the executor of a device whose backend has ``run_images``, else None."""
    place = _place(device)
    if place is None or not backends.provides(place.backend, "run_images"):
        return None
    return DeviceExecutor(place)


def pinning(device: str) -> Callable[[Any], Any] | None:
    """Return ``Backend.pin`` of the device, which lets it read host memory, or None."""
    place = _place(device)
    if place is None or not backends.provides(place.backend, "pin"):
        return None
    pin: Callable[[Any], Any] = place.backend.pin
    return pin


def _place(device: str) -> Any | None:
    if array_namespace.BACKEND != "nd":
        return None
    try:
        place = array_namespace.device(device)
    except UnknownNameError:
        return None
    return place if place.enabled() else None
