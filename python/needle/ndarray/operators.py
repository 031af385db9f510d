"""Python's operators for NDArray, as a mixin: each calls an elementwise kernel by name.

``array`` decides what an operand may be, ``dtype_rules`` the dtype of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Array = TypeVar("Array", bound="ArrayOperators")


def _binary(name: str) -> Callable[[Array, Any], Array]:
    """Return the operator that calls a binary kernel."""

    def operator(self: Array, other: Any) -> Array:
        return self.binary(name, other)

    return operator


def _arithmetic(
    name: str,
) -> tuple[
    Callable[[Array, Any], Array], Callable[[Array, Any], Array], Callable[[Array, Any], Array]
]:
    """Return ``a + b``, ``b + a`` and ``a += b`` of a binary kernel."""

    def reflected(self: Array, other: Any) -> Array:
        return self.binary(name, other, True)

    def inplace(self: Array, other: Any) -> Array:
        return self.inplace(name, other)

    return _binary(name), reflected, inplace


class ArrayOperators:
    """Python's operators, written with four methods of the array that call kernels by name."""

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
        return self.binary("subtract", 0)  # -0.0 + 0 would lose the sign

    def __abs__(self: Array) -> Array:
        return self.unary("abs")

    def __invert__(self: Array) -> Array:
        return self.unary("bitwise_invert")

    __add__, __radd__, __iadd__ = _arithmetic("add")
    __sub__, __rsub__, __isub__ = _arithmetic("subtract")
    __mul__, __rmul__, __imul__ = _arithmetic("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _arithmetic("divide")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _arithmetic("floor_divide")
    __mod__, __rmod__, __imod__ = _arithmetic("remainder")
    __pow__, __rpow__, __ipow__ = _arithmetic("power")
    __and__, __rand__, __iand__ = _arithmetic("bitwise_and")
    __or__, __ror__, __ior__ = _arithmetic("bitwise_or")
    __xor__, __rxor__, __ixor__ = _arithmetic("bitwise_xor")

    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")
    __hash__ = None  # type: ignore[assignment]
