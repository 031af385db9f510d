"""Executors: functions that run native steps on a device.

An executor receives the parameters drawn by execute.py, so all devices give the same images. Every
device whose backend has ``run_images`` has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import array_namespace, backends
from ...errors import UnknownNameError

Executor = Callable[..., None]
"""A function with the arguments of ``native_kernels.run_images``, which is the CPU's executor.

For a device's executor, ``out`` may also be an array on that device.
"""


class DeviceExecutor:
    """An executor of native steps on a device, with one upload and one launch per batch."""

    def __init__(self, place: Any) -> None:
        self.place = place

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an uninitialised array on the device."""
        return array_namespace.NDArray.make(shape, device=self.place, dtype=dtype)

    def __call__(
        self, steps: Any, parameters: Any, images: Any, indices: Any, out: Any, threads: int
    ) -> None:
        """Run the steps; see ``native_kernels.run_images``."""
        stays = isinstance(out, array_namespace.NDArray)
        made = out if stays else self.empty(out.shape, out.dtype)
        self.place.backend.run_images(steps, parameters, images, indices, made.view)
        if not stays:
            out[...] = made.numpy()


def device_executor(device: str) -> DeviceExecutor | None:
    """Return the executor of a device; None if its backend has no ``run_images``."""
    place = _place_with("run_images", device)
    return None if place is None else DeviceExecutor(place)


def pinning(device: str) -> Callable[[Any], Any] | None:
    """Return the device's ``Backend.pin``, by which it can read host memory directly, or None."""
    place = _place_with("pin", device)
    return None if place is None else place.backend.pin


def _place_with(kernel: str, device: str) -> Any | None:
    """Return the device of this name if it is usable and its backend has the kernel, else None."""
    if array_namespace.BACKEND != "nd":
        return None
    try:
        place = array_namespace.device(device)
    except UnknownNameError:
        return None
    provided = place.enabled() and backends.provides(place.backend, kernel)
    return place if provided else None
