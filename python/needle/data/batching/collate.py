"""Collation: samples are stacked (``default_collate``) and then become Tensors (``to_tensors``).

The data module does not depend on autograd: the package registers the Tensor type, or the program
sets another with ``set_tensor_type``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import array_namespace, dtypes
from ...array_namespace import adopt, default_device
from ...errors import DTypeError, ShapeError
from ..samples.pytree import Slice, Structure, columns, describe, one_shape
from ..samples.pytree import rebuild as rebuild
from ..samples.tensor_hook import TensorType, hook
from ..samples.tensor_hook import as_tensor as as_tensor
from ..samples.tensor_hook import set_tensor_type as set_tensor_type

_AS_THEY_ARE = frozenset(dtypes.COMPUTE_DTYPES) - {dtypes.float64}
"""The dtypes of arrays that a Tensor keeps by default."""

_WIDER = {
    "int8": dtypes.int32,
    "int16": dtypes.int32,
    "uint16": dtypes.int32,
    "uint32": dtypes.int64,
    "float16": dtypes.float32,
}


def default_collate(samples: Sequence[Any]) -> Any:
    """Return a batch of uniform samples: arrays stacked on a new first axis, numbers as arrays.

    int becomes int64, float becomes float32, and bool stays bool. Tuples, lists and dicts are
    collated field by field and keep their type; strings and bytes become a list. Raises ShapeError
    if shapes, lengths or keys differ, and TypeError if a field has any other type.
    """
    return collate_slice(samples).batch()


def collate_slice(
    samples: Sequence[Any],
    out: Sequence[npt.NDArray[Any] | None] | None = None,
    first: int = 0,
    ragged: int | None = None,
    ready: npt.NDArray[Any] | None = None,
) -> Slice:
    """Return the samples, part of a batch, collated like ``default_collate`` as a Slice.

    out: for each leaf the rows to write to, used if shape and dtype match. first: the position of
    ``samples[0]`` in the batch, for error messages. ragged: the number of a leaf that stays a list
    if its shapes differ. ready: the first leaf, if it is already stacked.
    """
    if not samples:
        raise ShapeError("default_collate: needs at least one sample, got none")
    structure = describe(samples[0])
    if ragged is not None and structure.kinds[ragged : ragged + 1] == ("array",):
        kinds = (*structure.kinds[:ragged], "uneven", *structure.kinds[ragged + 1 :])
        structure = Structure(structure.tree, kinds)
    leaves: list[Any] = []
    placed = []
    for i, column in enumerate(columns(samples, structure, first)):
        rows = None if out is None or i >= len(out) else out[i]
        if i == 0 and ready is not None:
            leaf = ready
        else:
            leaf = stack(column, structure.kinds[i], rows, first, ragged == i)
        leaves.append(leaf)
        placed.append(leaf is rows and rows is not None)
    return Slice(structure, leaves, len(samples), tuple(placed))


def stack(
    column: list[Any],
    kind: str,
    out: npt.NDArray[Any] | None = None,
    first: int = 0,
    ragged: bool = False,
) -> Any:
    """Return one leaf of a batch from its value in each sample, written to ``out`` if it fits."""
    ### BEGIN YOUR SOLUTION [collate]
    if kind == "text":
        return column
    if kind in _NUMBERS:
        array = _NUMBERS[kind](column)
        return array if out is None else place(array, out)
    arrays = [_as_array(value) for value in column]
    shapes = [array.shape for array in arrays]
    if ragged and len(set(shapes)) > 1:
        return arrays
    one_shape(shapes, first)
    dtype = np.result_type(*{array.dtype for array in arrays})
    if out is None or out.shape != (len(arrays), *shapes[0]) or out.dtype != dtype:
        return np.stack(arrays)
    return np.stack(arrays, out=out)
    ### END YOUR SOLUTION


def place(array: npt.NDArray[Any], out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``out`` filled with ``array`` if shape and dtype match, else ``array`` itself."""
    if out.shape != array.shape or out.dtype != array.dtype:
        return array
    out[...] = array
    return out


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


def _ints(samples: Sequence[Any]) -> npt.NDArray[np.int64]:
    try:
        return np.asarray(samples).astype(np.int64, casting="same_kind")
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"default_collate: a field that starts with the int {samples[0]} must hold ints, "
            f"got {list(samples)[:8]}; use one kind of number"
        ) from None


_NUMBERS: dict[str, Callable[[list[Any]], npt.NDArray[Any]]] = {
    "bool": lambda column: np.asarray(column, dtype=np.bool_),
    "int": _ints,
    "float": lambda column: np.asarray(column, dtype=dtypes.default_float),
}


def _as_array(sample: Any) -> npt.NDArray[Any]:
    if isinstance(sample, (np.ndarray, np.generic, int, float)):
        return np.asarray(sample)
    if hasattr(sample, "__array__"):
        return np.asarray(sample)
    if callable(getattr(sample, "numpy", None)):
        return np.asarray(sample.numpy())
    raise TypeError(
        f"default_collate: cannot make a batch of {type(sample).__name__}; return arrays, "
        f"numbers, tuples, lists or dicts from the dataset, or give collate="
    )
