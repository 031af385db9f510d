"""Python's operators for NDArray, as a mixin: each calls an elementwise kernel by its name.

``array`` decides what an operand may be, ``dtype_rules`` the dtype of the result.
"""

from __future__ import annotations

from typing import Any, TypeVar

Array = TypeVar("Array", bound="ArrayOperators")


class ArrayOperators:
    """Operators, written with four methods of the array that call kernels by name."""

    __slots__ = ()

    def unary(self: Array, name: str) -> Array:
        """Return ``name(self)``, elementwise; ``name`` is one of ``backends.base.UNARY``."""
        raise NotImplementedError

    def binary(self: Array, name: str, other: Any, reflected: bool = False) -> Array:
        """Return ``name(self, other)``, elementwise; ``reflected`` exchanges the operands.

        ``name`` is one of ``backends.base.BINARY``. The result is NotImplemented for an operand
        that is neither an array nor a number.
        """
        raise NotImplementedError

    def inplace(self: Array, name: str, other: Any) -> Array:
        """Write ``name(self, other)`` into this array and return it."""
        raise NotImplementedError

    def reduce(self: Array, name: str, axis: Any = None, keepdims: bool = False) -> Array:
        """Return the reduction ``name`` (one of ``backends.base.REDUCE``) over one or more axes."""
        raise NotImplementedError

    def __neg__(self: Array) -> Array:
        return self.unary("negative")

    def __pos__(self: Array) -> Array:
        return self.binary("subtract", 0)  # -0.0 + 0 would lose its sign

    def __abs__(self: Array) -> Array:
        return self.unary("abs")

    def __invert__(self: Array) -> Array:
        return self.unary("bitwise_invert")

    def __add__(self: Array, other: Any) -> Array:
        return self.binary("add", other)

    def __radd__(self: Array, other: Any) -> Array:
        return self.binary("add", other, True)

    def __iadd__(self: Array, other: Any) -> Array:
        return self.inplace("add", other)

    def __sub__(self: Array, other: Any) -> Array:
        return self.binary("subtract", other)

    def __rsub__(self: Array, other: Any) -> Array:
        return self.binary("subtract", other, True)

    def __isub__(self: Array, other: Any) -> Array:
        return self.inplace("subtract", other)

    def __mul__(self: Array, other: Any) -> Array:
        return self.binary("multiply", other)

    def __rmul__(self: Array, other: Any) -> Array:
        return self.binary("multiply", other, True)

    def __imul__(self: Array, other: Any) -> Array:
        return self.inplace("multiply", other)

    def __truediv__(self: Array, other: Any) -> Array:
        return self.binary("divide", other)

    def __rtruediv__(self: Array, other: Any) -> Array:
        return self.binary("divide", other, True)

    def __itruediv__(self: Array, other: Any) -> Array:
        return self.inplace("divide", other)

    def __floordiv__(self: Array, other: Any) -> Array:
        return self.binary("floor_divide", other)

    def __rfloordiv__(self: Array, other: Any) -> Array:
        return self.binary("floor_divide", other, True)

    def __ifloordiv__(self: Array, other: Any) -> Array:
        return self.inplace("floor_divide", other)

    def __mod__(self: Array, other: Any) -> Array:
        return self.binary("remainder", other)

    def __rmod__(self: Array, other: Any) -> Array:
        return self.binary("remainder", other, True)

    def __imod__(self: Array, other: Any) -> Array:
        return self.inplace("remainder", other)

    def __pow__(self: Array, other: Any) -> Array:
        return self.binary("power", other)

    def __rpow__(self: Array, other: Any) -> Array:
        return self.binary("power", other, True)

    def __ipow__(self: Array, other: Any) -> Array:
        return self.inplace("power", other)

    def __and__(self: Array, other: Any) -> Array:
        return self.binary("bitwise_and", other)

    def __rand__(self: Array, other: Any) -> Array:
        return self.binary("bitwise_and", other, True)

    def __iand__(self: Array, other: Any) -> Array:
        return self.inplace("bitwise_and", other)

    def __or__(self: Array, other: Any) -> Array:
        return self.binary("bitwise_or", other)

    def __ror__(self: Array, other: Any) -> Array:
        return self.binary("bitwise_or", other, True)

    def __ior__(self: Array, other: Any) -> Array:
        return self.inplace("bitwise_or", other)

    def __xor__(self: Array, other: Any) -> Array:
        return self.binary("bitwise_xor", other)

    def __rxor__(self: Array, other: Any) -> Array:
        return self.binary("bitwise_xor", other, True)

    def __ixor__(self: Array, other: Any) -> Array:
        return self.inplace("bitwise_xor", other)

    def __eq__(self: Array, other: object) -> Array:  # type: ignore[override]
        return self.binary("equal", other)

    def __ne__(self: Array, other: object) -> Array:  # type: ignore[override]
        return self.binary("not_equal", other)

    def __lt__(self: Array, other: Any) -> Array:
        return self.binary("less", other)

    def __le__(self: Array, other: Any) -> Array:
        return self.binary("less_equal", other)

    def __gt__(self: Array, other: Any) -> Array:
        return self.binary("greater", other)

    def __ge__(self: Array, other: Any) -> Array:
        return self.binary("greater_equal", other)

    __hash__ = None  # type: ignore[assignment]
