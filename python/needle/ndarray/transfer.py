"""From the host to a device: array-likes checked, devices resolved, elements uploaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import shapes
from ..backends.base import View
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..host_steps import host_step
from . import kernels
from .device import BackendDevice, default_device, device
from .interchange import HostArray


def as_device(where: Any) -> BackendDevice:
    """A device, a device name or None (the default) as a device that can be used."""
    place = default_device() if where is None else device(where)
    place.backend  # noqa: B018 - raises DeviceError with the reason where there is none
    return place


def host_array(op: str, source: Any) -> HostArray:
    """Anything array-like as a NumPy array of real numbers; DTypeError or ShapeError if not."""
    try:
        host = np.asarray(source)
    except ValueError as error:
        raise ShapeError(f"{op}: rows must have equal lengths, got {error}") from None
    if host.dtype.kind not in "biuf":
        raise DTypeError(
            f"{op}: elements must be bool, integers or floats, got {host.dtype} from "
            f"{type(source).__name__}; convert them first"
        )
    shapes.check_ndim(op, host.ndim)
    return host


@host_step
def upload(host: HostArray, place: BackendDevice, dtype: DType) -> View:
    """A row-major view on the device with the host array's elements, cast to ``dtype``."""
    out = kernels.empty(place.backend, host.shape, dtype)
    if host.dtype != dtype:
        with np.errstate(invalid="ignore", over="ignore"):
            host = host.astype(dtype)
    place.backend.upload(host, out)
    return out
