"""A mixin with methods of NDArray: reductions, positions, and the course's elementwise methods.

The namespace's functions of these names call the methods. They are composed of kernels, operators
and the operations of ``accelerated``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .. import accelerated
from ..dtypes import bool_, default_float, is_floating, uint8
from ..errors import DTypeError, ShapeError
from ..shapes import normalize_axes, normalize_axis, product
from .views import ArrayViews

Array = TypeVar("Array", bound="ArrayMethods")


class ArrayMethods(ArrayViews):
    """Methods composed of views, operators and reductions; the array adds ``astype``."""

    __slots__ = ()

    def astype(self: Array, dtype: Any, *, copy: bool = True) -> Array:
        """Return the array in another dtype."""
        raise NotImplementedError

    # ---- reductions --------------------------------------------------------------------------

    def sum(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """Return the sum over ``axis`` (None: every axis, an int or a tuple)."""
        _refuse_out("sum", out)
        return self.reduce("sum", axis, keepdims)

    def prod(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """Return the product over ``axis`` (None: every axis, an int or a tuple)."""
        _refuse_out("prod", out)
        return self.reduce("prod", axis, keepdims)

    def max(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """Return the maximum over ``axis`` (None: every axis); NaN propagates."""
        _refuse_out("max", out)
        return self.reduce("max", axis, keepdims)

    def min(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """Return the minimum over ``axis`` (None: every axis); NaN propagates."""
        _refuse_out("min", out)
        return self.reduce("min", axis, keepdims)

    def any(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """Return True where any element over ``axis`` is not 0."""
        _refuse_out("any", out)
        return self.reduce("any", axis, keepdims)

    def all(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """Return True where no element over ``axis`` is 0."""
        _refuse_out("all", out)
        return self.reduce("all", axis, keepdims)

    def mean(
        self: Array, axis: Any = None, keepdims: bool = False, *, dtype: Any = None, out: Any = None
    ) -> Array:
        """Return the mean over ``axis``; float32 for integers, NaN for no elements."""
        x = _converted("mean", self, dtype, out)
        count = product(x.shape[i] for i in normalize_axes("mean", axis, x.ndim))
        mean: Array = _widened(x).reduce("sum", axis, keepdims) / count
        return mean if is_floating(x.dtype) else mean.astype(default_float, copy=False)

    def var(
        self: Array,
        axis: Any = None,
        keepdims: bool = False,
        *,
        correction: float = 0,
        ddof: float = 0,
        dtype: Any = None,
        out: Any = None,
    ) -> Array:
        """Return the sum of squared deviations from the mean, divided by n - correction.

        ``ddof`` is NumPy's name for ``correction``. The result is NaN where n - correction <= 0.
        """
        x = _converted("var", self, dtype, out)
        correction = correction or ddof
        count = product(x.shape[i] for i in normalize_axes("var", axis, x.ndim))
        wide = _widened(x)
        distance: Array = wide - wide.mean(axis, keepdims=True)
        total = (distance * distance).reduce("sum", axis, keepdims)
        var = total / (count - correction) if count > correction else total * float("nan")
        return var if is_floating(x.dtype) else var.astype(default_float, copy=False)

    def std(
        self: Array,
        axis: Any = None,
        keepdims: bool = False,
        *,
        correction: float = 0,
        ddof: float = 0,
        dtype: Any = None,
        out: Any = None,
    ) -> Array:
        """Return the square root of ``var``."""
        x = _converted("std", self, dtype, out)
        return x.var(axis, keepdims, correction=correction or ddof).unary("sqrt")

    # ---- positions ---------------------------------------------------------------------------

    def argmax(self: Array, axis: int | None = None, keepdims: bool = False) -> Array:
        """Return the int64 position of the first maximum along ``axis`` (None: of ``flat``)."""
        return _position("argmax", accelerated.argmax, self, axis, keepdims)

    def argmin(self: Array, axis: int | None = None, keepdims: bool = False) -> Array:
        """Return the int64 position of the first minimum along ``axis`` (None: of ``flat``)."""
        return _position("argmin", accelerated.argmin, self, axis, keepdims)

    # ---- elementwise methods of the course ---------------------------------------------------

    def maximum(self: Array, other: Any) -> Array:
        """Return the elementwise maximum; NaN propagates."""
        return self.binary("maximum", other)

    def log(self: Array) -> Array:
        """Return the natural logarithm."""
        return self.unary("log")

    def exp(self: Array) -> Array:
        """Return e to the power of each element."""
        return self.unary("exp")

    def tanh(self: Array) -> Array:
        """Return the hyperbolic tangent."""
        return self.unary("tanh")


def _refuse_out(name: str, out: Any) -> None:
    """Raise an error unless ``out`` is None, the value that NumPy's functions pass to methods."""
    if out is not None:
        raise DTypeError(f"{name}: out= is not supported for needle arrays; assign the result")


def _converted(name: str, x: Array, dtype: Any, out: Any) -> Array:
    """Return the array in ``dtype``; None, which NumPy's functions pass, keeps the dtype."""
    _refuse_out(name, out)
    return x if dtype is None else x.astype(dtype)


def _widened(x: Any) -> Any:
    """Cast integers to floats, int32 and int64 to the widest floating dtype of the device."""
    if is_floating(x.dtype):
        return x
    wide = x.dtype.itemsize >= 4 and "float64" in x.device.dtypes
    return x.astype("float64" if wide else default_float)


def _position(
    name: str, function: Callable[..., Any], x: Array, axis: int | None, keepdims: bool
) -> Array:
    """Return the position of the extreme, or of a NaN; ShapeError if there are no elements."""
    if x.dtype == bool_:
        x = x.astype(uint8)
    ndim = x.ndim
    flat = x.reshape((-1,)) if axis is None else x
    along = 0 if axis is None else normalize_axis(name, axis, ndim)
    if not flat.shape[along] and (axis is None or all(x.shape[:along] + x.shape[along + 1 :])):
        raise ShapeError(f"{name}: there must be at least one element, got shape {x.shape}")
    result: Array = function(flat, along, keepdims)
    return result.reshape((1,) * ndim) if keepdims and axis is None else result
