"""The Tensor type of batches, which needle sets, since ``data`` does not depend on autograd.

Called by batching/collate.py and datasets/ptb.py; programs call ``set_tensor_type``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import array_namespace

TensorType = Callable[..., Any]


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
