"""The two protocols through which NumPy and the array API standard find this package's functions.

Both need every function of the namespace, so they are added to NDArray here, above the functions.
So are the operators << and >>, for which no backend has kernels. NDArray itself never calls them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import DTypeError
from ..torch_names import defined_names
from . import elementwise, linear_algebra
from .array import NDArray, from_host

UFUNC_NAMES = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
}
"""NumPy's ufuncs that have another name here."""

FUNCTIONS = {
    name: getattr(family, name)
    for family in (elementwise, linear_algebra)
    for name in defined_names(family.__name__)
}
"""A dict from names to functions; a ufunc calls the function of its name."""


def array_namespace(array: NDArray, *, api_version: str | None = None) -> ModuleType:
    """Return the function namespace of needle's arrays (Python array API standard)."""
    if api_version not in (None, "2022.12", "2023.12", "2024.12"):
        raise DTypeError(
            f"__array_namespace__: array API versions up to 2024.12 are supported, "
            f"got {api_version!r}"
        )
    return sys.modules[__package__]


def array_ufunc(array: NDArray, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """Call needle's equivalent of a NumPy ufunc; DTypeError if there is none."""
    known = (NDArray, np.ndarray, np.generic, bool, int, float)
    if not all(isinstance(item, known) for item in inputs):
        return NotImplemented
    name = UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__)
    function = FUNCTIONS.get(name)
    if function is None or method != "__call__" or options:
        extra = "".join(f" with {option}=" for option in options)
        called = ufunc.__name__ + ("" if method == "__call__" else f".{method}") + extra
        raise DTypeError(
            f"numpy.{called}: not supported for needle arrays; pass numpy.asarray(a) instead"
        )
    return function(*(_operand(array, item) for item in inputs))


def _operand(array: NDArray, item: Any) -> Any:
    """Return a ufunc's input as an NDArray on the device, or as a Python scalar."""
    if isinstance(item, np.generic) or (isinstance(item, np.ndarray) and not item.shape):
        return item.item()
    return from_host(item, array.device) if isinstance(item, np.ndarray) else item


def _reflected(function: Callable[[Any, Any], NDArray]) -> Callable[[Any, Any], NDArray]:
    return lambda array, other: function(other, array)


NDArray.__lshift__ = elementwise.bitwise_left_shift
NDArray.__rshift__ = elementwise.bitwise_right_shift
NDArray.__rlshift__ = _reflected(elementwise.bitwise_left_shift)
NDArray.__rrshift__ = _reflected(elementwise.bitwise_right_shift)
NDArray.__array_namespace__ = array_namespace
NDArray.__array_ufunc__ = array_ufunc
