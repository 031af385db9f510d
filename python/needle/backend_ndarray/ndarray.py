"""The course's module for the array type, which is defined in ``needle.ndarray``."""

from typing import Any

from ..ndarray import *  # noqa: F403
from ..ndarray import NDArray, array
from ..ndarray import __all__ as __all__
from ..ndarray import full as _full


def full(shape: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> NDArray:
    """Return a constant array, by default in the dtype of ``array(fill_value)``."""
    if dtype is None:
        dtype = array(fill_value, device=device).dtype
    return _full(shape, fill_value, dtype, device)
