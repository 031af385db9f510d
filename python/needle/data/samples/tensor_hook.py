"""Convert a batch to Tensors, with functions that ``needle`` sets in ``array_namespace``.

``data`` does not import autograd. Called by loader/iteration.py and datasets/ptb.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import array_namespace, dtypes
from ...array_namespace import adopt, default_device
from ...errors import DTypeError
from .pytree import rebuild

_AS_THEY_ARE = frozenset(dtypes.COMPUTE_DTYPES) - {dtypes.float64}
"""The dtypes of arrays that a Tensor keeps by default."""

_WIDER = {
    "int8": dtypes.int32,
    "int16": dtypes.int32,
    "uint16": dtypes.int32,
    "uint32": dtypes.int64,
    "float16": dtypes.float32,
}


def as_tensor(array: npt.NDArray[Any], device: Any = None, dtype: Any = None) -> Any:
    """Return ``array`` as a constant Tensor on ``device``, cast to ``dtype`` if that is given."""
    make = array_namespace.tensor_type
    return make(array, device=device, dtype=dtype, requires_grad=False)


def to_tensors(batch: Any, device: Any = None, owned: bool = False) -> Any:
    """Return ``batch`` with every array in its tuples, lists and dicts as a Tensor on ``device``.

    Integer and bool arrays keep their dtype (labels stay integers); floating-point arrays get
    Tensor's default dtype. Arrays of text or objects and all other values are unchanged. owned:
    nothing else references the arrays, so a Tensor may take over an array's memory instead of
    copying.
    """
    device = default_device() if device is None else device
    if isinstance(batch, np.ndarray):
        return _to_tensor(batch, device, owned)
    if array_namespace.is_array(batch):
        return array_namespace.tensor_constant(batch)  # already on the device
    if isinstance(batch, Mapping):
        return {key: to_tensors(each, device, owned) for key, each in batch.items()}
    if isinstance(batch, (tuple, list)):
        return rebuild(batch, [to_tensors(each, device, owned) for each in batch])
    return batch


def _to_tensor(array: npt.NDArray[Any], device: Any, owned: bool) -> Any:
    if array.dtype.kind not in "biuf":
        return array
    if owned and array.dtype in _AS_THEY_ARE:
        shared = adopt(array, device)
        if shared is not None:
            return array_namespace.tensor_constant(shared)
    dtype = None if array.dtype.kind == "f" else _tensor_dtype(array.dtype)
    return as_tensor(array, device, dtype)


@lru_cache(maxsize=64)  # NumPy needs microseconds to compute a dtype's name
def _tensor_dtype(dtype: np.dtype[Any]) -> Any:
    found = _WIDER.get(dtype.name, dtype)
    if found not in dtypes.COMPUTE_DTYPES:
        raise DTypeError(
            f"DataLoader: a batch has dtype {dtype}, which tensors do not support; convert it in "
            "the dataset or in collate"
        )
    return found
