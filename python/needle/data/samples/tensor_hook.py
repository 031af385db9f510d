"""The Tensor type of batches, which needle sets, since ``data`` does not depend on autograd.

Called by loader/iteration.py and datasets/ptb.py; programs call ``set_tensor_type``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import array_namespace, dtypes
from ...array_namespace import adopt, default_device
from ...errors import DTypeError
from .pytree import rebuild

TensorType = Callable[..., Any]
_AS_THEY_ARE = frozenset(dtypes.COMPUTE_DTYPES) - {dtypes.float64}
"""The dtypes of arrays that a Tensor keeps by default."""

_WIDER = {
    "int8": dtypes.int32,
    "int16": dtypes.int32,
    "uint16": dtypes.int32,
    "uint32": dtypes.int64,
    "float16": dtypes.float32,
}


@dataclass
class TensorHook:
    """The functions that make Tensors; if they are None, batches consist of NumPy arrays.

    make: ``make(array, device=, dtype=, requires_grad=False)``. constant: makes a Tensor that
    shares the memory of an array on a device.
    """

    make: TensorType | None
    constant: Callable[[Any], Any] | None


hook = TensorHook(array_namespace.tensor_type, array_namespace.tensor_constant)


def set_tensor_type(
    tensor_type: TensorType | None, constant: Callable[[Any], Any] | None = None
) -> None:
    """Make batches of ``tensor_type(array, device=, dtype=, requires_grad=False)`` from now on.

    constant: makes a Tensor that shares the memory of an array on a device. With None for both,
    batches are NumPy arrays.
    """
    hook.make, hook.constant = tensor_type, constant


def as_tensor(array: npt.NDArray[Any], device: Any = None, dtype: Any = None) -> Any:
    """Return ``array`` as a constant Tensor on ``device``, cast to ``dtype`` if that is given.

    Without a Tensor type it stays a NumPy array.
    """
    if hook.make is None:
        return np.asarray(array, dtype=dtype)
    return hook.make(array, device=device, dtype=dtype, requires_grad=False)


def to_tensors(batch: Any, device: Any = None, owned: bool = False) -> Any:
    """Return ``batch`` with every array in its tuples, lists and dicts as a Tensor on ``device``.

    Integer and bool arrays keep their dtype (labels stay integers); floating-point arrays get
    Tensor's default dtype. Arrays of text or objects and all other values are unchanged. owned:
    nothing else references the arrays, so a Tensor may take over an array's memory instead of
    copying.
    """
    if hook.make is None:
        return batch
    place = default_device() if device is None else device
    return _converted(hook.make, batch, place, owned)


def _converted(tensor_type: TensorType, batch: Any, device: Any, owned: bool) -> Any:
    if isinstance(batch, np.ndarray):
        return _to_tensor(tensor_type, batch, device, owned)
    if hook.constant is not None and array_namespace.is_array(batch):
        return hook.constant(batch)  # already on its device
    if isinstance(batch, Mapping):
        return {key: _converted(tensor_type, each, device, owned) for key, each in batch.items()}
    if isinstance(batch, (tuple, list)):
        return rebuild(batch, [_converted(tensor_type, each, device, owned) for each in batch])
    return batch


def _to_tensor(tensor_type: TensorType, array: npt.NDArray[Any], device: Any, owned: bool) -> Any:
    if array.dtype.kind not in "biuf":
        return array
    if owned and hook.constant is not None and array.dtype in _AS_THEY_ARE:
        shared = adopt(array, device)
        if shared is not None:
            return hook.constant(shared)
    dtype = None if array.dtype.kind == "f" else _tensor_dtype(array.dtype)
    return tensor_type(array, device=device, dtype=dtype, requires_grad=False)


@lru_cache(maxsize=64)  # NumPy needs microseconds to compute a dtype's name
def _tensor_dtype(dtype: np.dtype[Any]) -> Any:
    found = _WIDER.get(dtype.name, dtype)
    if found not in dtypes.COMPUTE_DTYPES:
        raise DTypeError(
            f"DataLoader: a batch has dtype {dtype}, which tensors do not have; "
            f"convert it in the dataset or in collate"
        )
    return found
