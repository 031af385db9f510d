"""From a list of samples to a batch: stacking (``default_collate``), then Tensors (``to_tensors``).

data knows no autograd: the package hands its Tensor over once through ``set_tensor_type``; until
then batches are NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..errors import DTypeError, ShapeError

TensorType = Callable[..., Any]

_tensor_type: TensorType | None = None

_WIDER = {
    "int8": dtypes.int32,
    "int16": dtypes.int32,
    "uint16": dtypes.int32,
    "uint32": dtypes.int64,
    "float16": dtypes.float32,
}


def set_tensor_type(tensor_type: TensorType | None) -> None:
    """Batches become ``tensor_type(array, device=, dtype=, requires_grad=False)`` from now on.

    None takes the hook out again: batches are NumPy arrays.
    """
    global _tensor_type
    _tensor_type = tensor_type


def default_collate(samples: Sequence[Any]) -> Any:
    """A batch of equal samples: arrays stacked on a new first axis, numbers made an array.

    int gives int64, float float32, bool bool; tuples, lists and dicts are collated field by
    field and keep their kind; strings and bytes become a list. Raises ShapeError where shapes,
    lengths or keys differ, TypeError for anything else.
    """
    if not samples:
        raise ShapeError("default_collate: needs at least one sample, got none")
    first = samples[0]
    if isinstance(first, (str, bytes)):
        return list(samples)
    if isinstance(first, Mapping):
        return _collate_mappings(samples)
    if isinstance(first, (tuple, list)):
        return _collate_sequences(samples)
    if isinstance(first, (bool, np.bool_)):
        return np.asarray(samples, dtype=np.bool_)
    if isinstance(first, int):
        return _collate_ints(samples)
    if isinstance(first, float) and not isinstance(first, np.floating):
        return np.asarray(samples, dtype=dtypes.default_float)
    return _stack([_as_array(sample) for sample in samples])


def to_tensors(batch: Any, device: Any = None) -> Any:
    """``batch`` with every array in its tuples, lists and dicts made a Tensor on ``device``.

    Integer and bool arrays keep their dtype (labels stay ids); floating ones take Tensor's
    default. Arrays of text or objects and everything else stay as they are.
    """
    if _tensor_type is None:
        return batch
    if isinstance(batch, np.ndarray):
        return _to_tensor(_tensor_type, batch, device)
    if isinstance(batch, Mapping):
        return {key: to_tensors(value, device) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return rebuild(batch, [to_tensors(value, device) for value in batch])
    return batch


def _to_tensor(tensor_type: TensorType, array: npt.NDArray[Any], device: Any) -> Any:
    if array.dtype.kind not in "biuf":
        return array
    dtype = None if array.dtype.kind == "f" else _WIDER.get(array.dtype.name, array.dtype)
    if dtype is not None and dtype not in dtypes.KIND:
        raise DTypeError(
            f"DataLoader: a batch has dtype {array.dtype}, which tensors do not have; "
            f"convert it in the dataset or in collate"
        )
    return tensor_type(array, device=device, dtype=dtype, requires_grad=False)


def _collate_mappings(samples: Sequence[Any]) -> dict[Any, Any]:
    keys = samples[0].keys()
    for i, sample in enumerate(samples):
        if not isinstance(sample, Mapping) or sample.keys() != keys:
            got = sorted(map(str, sample)) if isinstance(sample, Mapping) else sample
            raise ShapeError(
                f"default_collate: every sample must have the keys {sorted(map(str, keys))}, "
                f"got {got} in sample {i} of the batch; give collate= for uneven samples"
            )
    return {key: default_collate([sample[key] for sample in samples]) for key in keys}


def _collate_sequences(samples: Sequence[Any]) -> Any:
    first = samples[0]
    for i, sample in enumerate(samples):
        if not isinstance(sample, (tuple, list)) or len(sample) != len(first):
            got = f"{len(sample)}" if isinstance(sample, (tuple, list)) else repr(sample)
            raise ShapeError(
                f"default_collate: every sample must have {len(first)} fields, got {got} in "
                f"sample {i} of the batch; give collate= for uneven samples"
            )
    columns = [default_collate([sample[j] for sample in samples]) for j in range(len(first))]
    return rebuild(first, columns)


def _collate_ints(samples: Sequence[Any]) -> npt.NDArray[np.int64]:
    try:
        return np.asarray(samples).astype(np.int64, casting="same_kind")
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"default_collate: a field that starts with the int {samples[0]} must hold ints, "
            f"got {list(samples)[:8]}; use one kind of number"
        ) from None


def rebuild(like: Any, fields: list[Any]) -> Any:
    """``fields`` as a tuple, named tuple or list, whichever ``like`` is."""
    if hasattr(like, "_fields"):
        return type(like)(*fields)
    return tuple(fields) if isinstance(like, tuple) else fields


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


def _stack(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    shape = arrays[0].shape
    for i, array in enumerate(arrays):
        if array.shape != shape:
            raise ShapeError(
                f"default_collate: samples of a batch must have one shape, got {shape} in sample "
                f"0 and {array.shape} in sample {i}; resize them, or give collate="
            )
    return np.stack(arrays)
