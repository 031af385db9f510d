"""``accelerated``: an operation with a definition in plain array operations and maybe a kernel.

The definition says what the operation means and runs everywhere: on NumPy arrays and on any
backend that has the ten required functions. Where the array's backend provides the optional kernel
of the same name, the kernel runs instead. Called by the family files beside this one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import numpy as np

from ..backends.base import OPTIONAL, Backend, provides
from ..errors import DeviceError, DTypeError
from ..shapes import dense_strides_like

Array = Any
"""An NDArray or a ``numpy.ndarray``: what both offer is what definitions use."""

P = ParamSpec("P")
R = TypeVar("R")

OPERATIONS: dict[str, Accelerated[Any, Any]] = {}
"""Every accelerated operation by name, in the order of definition."""


class Accelerated(Generic[P, R]):
    """A function over arrays that a backend may accelerate; call it like its definition."""

    def __init__(self, definition: Callable[P, R], floating: bool) -> None:
        self.name = definition.__name__
        self.definition = definition
        self.floating = floating
        self._adapter: Callable[Concatenate[Backend, P], R] | None = None
        functools.update_wrapper(self, definition)

    def kernel(self, adapter: Callable[Concatenate[Backend, P], R]) -> None:
        """Decorator: ``adapter(backend, ...)`` allocates outputs and calls the backend's kernel."""
        assert self.name in OPTIONAL, f"{self.name} is no optional kernel of Backend"
        self._adapter = adapter

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        first = _first_array(args)
        if first is None:
            return self.definition(*args, **kwargs)
        if self.floating and first.dtype.kind != "f":
            raise DTypeError(
                f"{self.name}: the array must be float32 or float64, got {first.dtype}; "
                "use astype first"
            )
        if isinstance(first, (np.ndarray, np.generic)) or self._adapter is None:
            return self.definition(*args, **kwargs)
        backend = first.device.backend
        if self._uniform(first, args) and provides(backend, self.name):
            return self._adapter(backend, *args, **kwargs)
        return self.definition(*args, **kwargs)

    def _uniform(self, first: Array, args: tuple[Any, ...]) -> bool:
        """Whether all floating arrays share one dtype, as kernels need; DeviceError if not all
        arrays are on one device."""
        device, dtype = first.device, first.dtype
        for array in _arrays(args):
            if array.dtype is dtype and array.device is device:
                continue
            if array.device != device:
                raise DeviceError(
                    f"{self.name}: all arrays must be on one device, got {device} and "
                    f"{array.device}; move one with to(device)"
                )
            if array.dtype != dtype and array.dtype.kind == "f":
                return False
        return True

    def __repr__(self) -> str:
        return f"<accelerated {self.name}>"


def _arrays(args: Sequence[Any]) -> Iterator[Array]:
    """The arrays among the arguments; a sequence holds arrays alone, or none."""
    for item in args:
        if isinstance(item, (list, tuple)):
            yield from item if item and hasattr(item[0], "dtype") else ()
        elif hasattr(item, "dtype"):
            yield item


def _first_array(args: tuple[Any, ...]) -> Array | None:
    return next(_arrays(args), None)


@overload
def accelerated(definition: Callable[P, R]) -> Accelerated[P, R]: ...


@overload
def accelerated(*, floating: bool) -> Callable[[Callable[P, R]], Accelerated[P, R]]: ...


def accelerated(definition: Callable[P, R] | None = None, *, floating: bool = True) -> Any:
    """Decorator: makes a definition an accelerated operation and a row of ``OPERATIONS``.

    ``floating``: the first array must be float32 or float64, else DTypeError.
    """

    def register(function: Callable[P, R]) -> Accelerated[P, R]:
        made = Accelerated(function, floating)
        OPERATIONS[made.name] = made
        return made

    return register if definition is None else register(definition)


def empty(like: Array, shape: tuple[int, ...], dtype: Any = None) -> Array:
    """A row-major array with undefined contents, of ``like``'s kind and device (and dtype)."""
    xp = like.__array_namespace__()
    return xp.empty(shape, dtype=like.dtype if dtype is None else dtype, device=like.device)


def empty_dense(like: Array, *others: Array) -> Array:
    """``empty`` of ``like``'s shape, in the axis order in memory of ``like`` (and ``others``)."""
    strides = dense_strides_like(like.shape, like.strides, *(a.strides for a in others))
    return type(like).make(like.shape, strides, device=like.device, dtype=like.dtype)


def full(like: Array, shape: tuple[int, ...], value: float, dtype: Any = None) -> Array:
    """A row-major array of one value, of ``like``'s kind and device (and dtype)."""
    xp = like.__array_namespace__()
    dtype = like.dtype if dtype is None else dtype
    return xp.full(shape, value, dtype=dtype, device=like.device)


def as_int64(index: Array) -> Array:
    """The array as int64, which kernels expect of indices and labels."""
    return index if index.dtype == "int64" else index.astype("int64")
