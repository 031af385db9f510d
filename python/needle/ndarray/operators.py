"""Python's operators for NDArray, as a mixin: each names a kernel row and lets the array call it.

What an operand may be, and the dtype of the result, is decided in ``array`` and ``dtype_rules``.
"""

from __future__ import annotations

from typing import Any, TypeVar

Array = TypeVar("Array", bound="ArrayOperators")


class ArrayOperators:
    """Operators over three methods of the array: _unary, _binary (reflected or not), _inplace."""

    __slots__ = ()

    def _unary(self: Array, name: str) -> Array:
        raise NotImplementedError

    def _binary(self: Array, name: str, other: Any, reflected: bool = False) -> Array:
        raise NotImplementedError

    def _inplace(self: Array, name: str, other: Any) -> Array:
        raise NotImplementedError

    def __neg__(self: Array) -> Array:
        return self._unary("negative")

    def __pos__(self: Array) -> Array:
        return self._binary("subtract", 0)  # -0.0 + 0 would lose its sign

    def __abs__(self: Array) -> Array:
        return self._unary("abs")

    def __invert__(self: Array) -> Array:
        return self._unary("bitwise_invert")

    def __add__(self: Array, other: Any) -> Array:
        return self._binary("add", other)

    def __radd__(self: Array, other: Any) -> Array:
        return self._binary("add", other, True)

    def __iadd__(self: Array, other: Any) -> Array:
        return self._inplace("add", other)

    def __sub__(self: Array, other: Any) -> Array:
        return self._binary("subtract", other)

    def __rsub__(self: Array, other: Any) -> Array:
        return self._binary("subtract", other, True)

    def __isub__(self: Array, other: Any) -> Array:
        return self._inplace("subtract", other)

    def __mul__(self: Array, other: Any) -> Array:
        return self._binary("multiply", other)

    def __rmul__(self: Array, other: Any) -> Array:
        return self._binary("multiply", other, True)

    def __imul__(self: Array, other: Any) -> Array:
        return self._inplace("multiply", other)

    def __truediv__(self: Array, other: Any) -> Array:
        return self._binary("divide", other)

    def __rtruediv__(self: Array, other: Any) -> Array:
        return self._binary("divide", other, True)

    def __itruediv__(self: Array, other: Any) -> Array:
        return self._inplace("divide", other)

    def __floordiv__(self: Array, other: Any) -> Array:
        return self._binary("floor_divide", other)

    def __rfloordiv__(self: Array, other: Any) -> Array:
        return self._binary("floor_divide", other, True)

    def __ifloordiv__(self: Array, other: Any) -> Array:
        return self._inplace("floor_divide", other)

    def __mod__(self: Array, other: Any) -> Array:
        return self._binary("remainder", other)

    def __rmod__(self: Array, other: Any) -> Array:
        return self._binary("remainder", other, True)

    def __imod__(self: Array, other: Any) -> Array:
        return self._inplace("remainder", other)

    def __pow__(self: Array, other: Any) -> Array:
        return self._binary("power", other)

    def __rpow__(self: Array, other: Any) -> Array:
        return self._binary("power", other, True)

    def __ipow__(self: Array, other: Any) -> Array:
        return self._inplace("power", other)

    def __and__(self: Array, other: Any) -> Array:
        return self._binary("bitwise_and", other)

    def __rand__(self: Array, other: Any) -> Array:
        return self._binary("bitwise_and", other, True)

    def __iand__(self: Array, other: Any) -> Array:
        return self._inplace("bitwise_and", other)

    def __or__(self: Array, other: Any) -> Array:
        return self._binary("bitwise_or", other)

    def __ror__(self: Array, other: Any) -> Array:
        return self._binary("bitwise_or", other, True)

    def __ior__(self: Array, other: Any) -> Array:
        return self._inplace("bitwise_or", other)

    def __xor__(self: Array, other: Any) -> Array:
        return self._binary("bitwise_xor", other)

    def __rxor__(self: Array, other: Any) -> Array:
        return self._binary("bitwise_xor", other, True)

    def __ixor__(self: Array, other: Any) -> Array:
        return self._inplace("bitwise_xor", other)

    def __eq__(self: Array, other: object) -> Array:  # type: ignore[override]
        return self._binary("equal", other)

    def __ne__(self: Array, other: object) -> Array:  # type: ignore[override]
        return self._binary("not_equal", other)

    def __lt__(self: Array, other: Any) -> Array:
        return self._binary("less", other)

    def __le__(self: Array, other: Any) -> Array:
        return self._binary("less_equal", other)

    def __gt__(self: Array, other: Any) -> Array:
        return self._binary("greater", other)

    def __ge__(self: Array, other: Any) -> Array:
        return self._binary("greater_equal", other)

    __hash__ = None  # type: ignore[assignment]
