"""Functions of the namespace as methods of NDArray, as a mixin: reductions and the course's few."""

from __future__ import annotations

from typing import Any, TypeVar

from ..errors import DTypeError
from .interchange import ArrayInterchange
from .operators import ArrayOperators

Array = TypeVar("Array", bound="ArrayMethods")


class ArrayMethods(ArrayOperators, ArrayInterchange):
    """Methods over the operators' and the namespace's; the array brings _reduce."""

    __slots__ = ()

    def _reduce(self: Array, name: str, axis: Any, keepdims: bool, out: Any = None) -> Array:
        raise NotImplementedError

    def sum(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """The sum over None (all), one or several axes."""
        return self._reduce("sum", axis, keepdims, out)

    def prod(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """The product over None (all), one or several axes."""
        return self._reduce("prod", axis, keepdims, out)

    def max(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """The maximum over None (all), one or several axes; NaN wins."""
        return self._reduce("max", axis, keepdims, out)

    def min(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """The minimum over None (all), one or several axes; NaN wins."""
        return self._reduce("min", axis, keepdims, out)

    def any(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """Whether any element is not 0."""
        return self._reduce("any", axis, keepdims, out)

    def all(self: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Array:
        """Whether no element is 0."""
        return self._reduce("all", axis, keepdims, out)

    def _plain(self: Array, name: str, dtype: Any, out: Any) -> Array:
        """The array in ``dtype``; NumPy's functions pass dtype and out along as None."""
        if out is not None:
            raise DTypeError(f"{name}: out= is not offered for needle arrays; assign the result")
        if dtype is None:
            return self
        result: Array = self._namespace.astype(self, dtype)
        return result

    def _call(self: Array, name: str, *args: Any, **options: Any) -> Array:
        """A function of the namespace on this array."""
        result: Array = getattr(self._namespace, name)(self, *args, **options)
        return result

    def mean(
        self: Array,
        axis: Any = None,
        keepdims: bool = False,
        *,
        dtype: Any = None,
        out: Any = None,
    ) -> Array:
        """The mean over None (all), one or several axes."""
        x = self._plain("mean", dtype, out)
        return x._call("mean", axis=axis, keepdims=keepdims)

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
        """The variance, divided by n - correction (``ddof`` is NumPy's name for it)."""
        x = self._plain("var", dtype, out)
        return x._call("var", axis=axis, keepdims=keepdims, correction=correction or ddof)

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
        """The standard deviation, with n - correction (``ddof`` is NumPy's name for it)."""
        x = self._plain("std", dtype, out)
        return x._call("std", axis=axis, keepdims=keepdims, correction=correction or ddof)

    def argmax(self: Array, axis: int | None = None, keepdims: bool = False) -> Array:
        """The position of the first maximum along an axis (None: of the flat array)."""
        return self._call("argmax", axis=axis, keepdims=keepdims)

    def argmin(self: Array, axis: int | None = None, keepdims: bool = False) -> Array:
        """The position of the first minimum along an axis (None: of the flat array)."""
        return self._call("argmin", axis=axis, keepdims=keepdims)

    def maximum(self: Array, other: Any) -> Array:
        """The larger of each pair of elements; NaN wins."""
        return self._binary("maximum", other)

    def log(self: Array) -> Array:
        """The natural logarithm."""
        return self._unary("log")

    def exp(self: Array) -> Array:
        """e to the power of each element."""
        return self._unary("exp")

    def tanh(self: Array) -> Array:
        """The hyperbolic tangent."""
        return self._unary("tanh")
