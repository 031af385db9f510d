"""The course's module of the array type; its home is ``needle.ndarray``."""

from typing import Any

from ..ndarray import *  # noqa: F403
from ..ndarray import NDArray, array
from ..ndarray import __all__ as __all__
from ..ndarray import full as _full


def full(shape: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> NDArray:
    """Return an array of one value in the dtype of ``array(fill_value)`` unless one is given."""
    if dtype is None:
        dtype = array(fill_value, device=device).dtype
    return _full(shape, fill_value, dtype, device)
