"""The array API standard's functions that create arrays, and the course's ``array``.

``device=`` takes a device or its name; None is ``default_device()``. The default dtypes are float32
for floats and int64 for ints; the course's ``empty`` and ``array`` return float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backends.base import View
from ..backends.writes import note_shared
from ..dtypes import DType, as_dtype, default_float, default_int
from ..errors import DeviceError, DTypeError, ShapeError
from ..shapes import MAX_SIZE, as_shape, compact_strides
from ..torch_names import publish
from .array import NDArray, wrap
from .device import BackendDevice, usable_device
from .dtype_rules import fitting
from .interchange import HostArray, host_array, upload


def array(a: Any, dtype: Any = None, device: Any = None) -> NDArray:
    """Return a copy of anything array-like, float32 unless ``dtype`` is given; bool stays bool."""
    return NDArray(a, device=device, dtype=dtype)


def asarray(
    obj: Any, /, dtype: Any = None, *, device: Any = None, copy: bool | None = None
) -> NDArray:
    """Return an array-like as an NDArray of its dtype; Python floats give float32, ints int64.

    An NDArray that already has the dtype and device is returned itself unless ``copy`` is True.
    ``copy=False`` shares a NumPy array's memory where the device can, and raises ShapeError (a
    ValueError) where a copy is needed.
    """
    if isinstance(obj, NDArray):
        return _as_is(obj, dtype, device, copy)
    host = host_array("asarray", obj)
    wanted = _asarray_dtype(obj, host) if dtype is None else as_dtype(dtype, "asarray")
    target = usable_device(device)
    if copy is False:
        shared = (
            adopt(host, target) if isinstance(obj, np.ndarray) and host.dtype == wanted else None
        )
        if shared is None:
            raise ShapeError(
                f"asarray: {target} cannot share this memory as {wanted}; leave out copy=False"
            )
        return shared
    return wrap(upload(host, target, wanted, source=obj), target)


def _as_is(x: NDArray, dtype: Any, device: Any, copy: bool | None) -> NDArray:
    wanted = x.dtype if dtype is None else as_dtype(dtype, "asarray")
    target = x.device if device is None else usable_device(device)
    if not copy and wanted == x.dtype and target == x.device:
        return x
    if copy is False:
        raise ShapeError(
            f"asarray: {x.dtype} on {x.device} to {wanted} on {target} needs a copy; "
            f"leave copy=False out"
        )
    return NDArray(x, device=target, dtype=wanted)


def _asarray_dtype(obj: Any, host: Any) -> DType:
    """Return an array's own dtype, or float32 for Python floats, which NumPy makes float64."""
    if hasattr(obj, "dtype") or host.dtype.kind != "f":
        return as_dtype(host.dtype, "asarray")
    return _deep_dtype(obj) or default_float


def _deep_dtype(obj: Any) -> DType | None:
    """Return the dtype of the first array-like inside nested lists, or None."""
    while isinstance(obj, list | tuple) and obj:
        obj = obj[0]
    dtype = getattr(obj, "dtype", None)
    return None if dtype is None else as_dtype(dtype, "asarray")


def adopt(host: Any, device: BackendDevice) -> NDArray | None:
    """Return an array that shares the host array's memory, or None if that is impossible.

    The memory must be writable and, in some order of the axes, contiguous.
    """
    if not host.dtype.isnative:
        return None
    dense, order = host, list(range(host.ndim))
    if not host.flags.c_contiguous:
        if any(step < 0 for step in host.strides):
            return None
        order.sort(key=lambda axis: -host.strides[axis])
        dense = host.transpose(order)
    handle = device.backend.adopt(dense)
    if handle is None:
        return None
    note_shared(handle)
    shape, dtype = dense.shape, as_dtype(host.dtype, "asarray")
    array = wrap(View(handle, shape, compact_strides(shape), 0, dtype), device)
    return array if dense is host else array.permute(np.argsort(order).tolist())


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> NDArray:
    """Return another library's array through DLPack, sharing its memory where possible.

    Memory that is read-only or not contiguous is copied, or is a ShapeError with ``copy=False``.
    """
    own = isinstance(x, NDArray) and device is None
    target = x.device if own else usable_device(device)
    host, shared = _host_from_dlpack(x), None
    if not copy and host.flags.aligned:
        shared = adopt(host, target)
    if shared is not None:
        return shared
    if copy is False:
        raise ShapeError(f"from_dlpack: {target} cannot share this memory; leave copy=False out")
    host = host_array("from_dlpack", host)
    return wrap(upload(host, target, as_dtype(host.dtype, "from_dlpack")), target)


def _host_from_dlpack(x: Any) -> Any:
    """Return ``x`` as a NumPy array; DeviceError if DLPack cannot pass it on."""
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError) as error:
        if isinstance(x, np.ndarray):  # byte-swapped or unaligned arrays
            return x
        raise DeviceError(
            f"from_dlpack: the array must be in the CPU's memory in a form that NumPy reads, got "
            f"{type(x).__name__} ({error}); copy it to a NumPy array"
        ) from error


def empty(shape: Any, dtype: Any = None, device: Any = None) -> NDArray:
    """Return an array with undefined contents, float32 by default."""
    return NDArray.make(shape, device=device, dtype=default_float if dtype is None else dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> NDArray:
    """Return a constant array, by default in the dtype of ``asarray(fill_value)``."""
    if dtype is None:
        host = host_array("full", fill_value)
        dtype = _asarray_dtype(fill_value, host)
    out = empty(shape, dtype, device)
    out.assign(fill_value, new=True)
    return out


def zeros(shape: Any, dtype: Any = None, device: Any = None) -> NDArray:
    """Return an array of zeros, float32 by default."""
    return full(shape, 0, default_float if dtype is None else dtype, device)


def ones(shape: Any, dtype: Any = None, device: Any = None) -> NDArray:
    """Return an array of ones, float32 by default."""
    return full(shape, 1, default_float if dtype is None else dtype, device)


def empty_like(x: NDArray, /, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return ``empty`` with the shape, dtype and device of ``x``."""
    return empty(
        x.shape, x.dtype if dtype is None else dtype, x.device if device is None else device
    )


def full_like(x: NDArray, /, fill_value: Any, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return ``full`` with the shape, dtype and device of ``x``."""
    if dtype is None and device is None:  # the common case
        out = x.new_empty(x.shape, x.dtype)
    else:
        out = empty_like(x, dtype, device=device)
    out.assign(fill_value, new=True)
    return out


def zeros_like(x: NDArray, /, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return ``zeros`` with the shape, dtype and device of ``x``."""
    return full_like(x, 0, dtype, device=device)


def ones_like(x: NDArray, /, dtype: Any = None, *, device: Any = None) -> NDArray:
    """Return ``ones`` with the shape, dtype and device of ``x``."""
    return full_like(x, 1, dtype, device=device)


def _host(source: Any, dtype: Any, device: Any) -> NDArray:
    """Copy an array computed on the host, in ``dtype`` or its own (float32 for floats)."""
    own = default_float if source.dtype.kind == "f" else source.dtype
    return NDArray(source, device=device, dtype=own if dtype is None else dtype)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> NDArray:
    """Return start, start + step, ... below stop; int64 for ints, float32 if one is a float."""
    if step == 0:
        raise ShapeError("arange: step must not be 0, got 0; use a step that reaches stop")
    first, last = (0, start) if stop is None else (start, stop)
    first, last, step = (int(x) if isinstance(x, np.integer) else x for x in (first, last, step))
    reach = (last - first) / step
    if not reach < MAX_SIZE:
        raise ShapeError(
            f"arange: start, stop and step must give fewer than 2**60 values, got {first}, {last}, "
            f"{step}; use finite numbers"
        )
    count = math.ceil(max(reach, 0))
    whole = all(isinstance(item, int) for item in (first, last, step))
    if whole and count:
        for end in (first, first + (count - 1) * step):
            fitting("arange", default_int, int(end))
    steps: Any = np.arange(count, dtype=np.int64 if whole else np.float64)
    return _host(first + steps * step, dtype, device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> NDArray:
    """Return ``num`` evenly spaced values from start to stop, including stop if ``endpoint``."""
    if num < 0:
        raise ShapeError(f"linspace: num must not be negative, got {num}; pass 0 or more")
    values = np.linspace(start, stop, num, endpoint=endpoint, dtype=np.float64)
    return _host(values, dtype, device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> NDArray:
    """Return a matrix with ones on diagonal ``k`` and zeros elsewhere."""
    rows, columns = as_shape("eye", (n_rows, n_rows if n_cols is None else n_cols))
    wanted = default_float if dtype is None else dtype
    return _host(np.eye(rows, columns, k), wanted, device)


def tril(x: NDArray, /, *, k: int = 0) -> NDArray:
    """Return a copy with zeros above diagonal ``k`` of the last two axes."""
    return _triangle("tril", x, k)


def triu(x: NDArray, /, *, k: int = 0) -> NDArray:
    """Return a copy with zeros below diagonal ``k`` of the last two axes."""
    return _triangle("triu", x, k)


def _triangle(name: str, x: NDArray, k: int) -> NDArray:
    if x.ndim < 2:
        raise ShapeError(f"{name}: the array must have at least 2 axes, got shape {x.shape}")
    mask = getattr(np, name)(np.ones(x.shape[-2:], bool), k)
    keep = NDArray(mask, device=x.device).broadcast_to(x.shape)
    out = x.copy()
    out[~keep] = 0
    return out


def meshgrid(*arrays: NDArray, indexing: str = "xy") -> list[NDArray]:
    """Return coordinate arrays made of 1-D arrays.

    Their shape is (len 1, len 0, ...) for ``indexing="xy"`` and (len 0, len 1, ...) for "ij".
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}")
    if any(x.ndim != 1 for x in arrays):
        got = [x.shape for x in arrays]
        raise ShapeError(f"meshgrid: arrays must be 1-D, got shapes {got}; reshape them")
    if len({x.dtype for x in arrays}) > 1:
        raise DTypeError("meshgrid: arrays must have the same dtype, got several; cast them to one")
    shape = tuple(x.size for x in arrays)
    grids = [
        x.reshape((1,) * axis + (-1,) + (1,) * (len(arrays) - axis - 1)).broadcast_to(shape)
        for axis, x in enumerate(arrays)
    ]
    if indexing == "xy" and len(arrays) > 1:
        order = (1, 0, *range(2, len(arrays)))
        grids = [grid.permute(order) for grid in grids]
    return [grid.copy() for grid in grids]


# ---- functions that array_namespace needs in both modes --------------------------------------


def to_numpy(array: NDArray) -> HostArray:
    """Return the elements as a NumPy array (a copy)."""
    return array.device.backend.download(array.view)


def from_numpy(array: Any, device: Any = None, dtype: Any = None) -> NDArray:
    """Return a copy of a NumPy array on ``device``, as float32 unless ``dtype`` is given.

    A bool array stays bool.
    """
    return NDArray(array, device=device, dtype=dtype)


def device_of(array: NDArray) -> BackendDevice:
    """Return the device that holds ``array``."""
    return array.device


def is_array(x: Any) -> bool:
    """Return True if ``x`` is an NDArray."""
    return isinstance(x, NDArray)


publish(__name__)
