"""``accelerated``: operations with a definition in plain array operations and optional kernels.

The definition says what the operation means and runs everywhere: on NumPy arrays and on any
backend that has the ten required functions. Where the array's backend provides the optional kernel
of the same name, the kernel runs instead. Called by the other files in this folder.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

from ..backends.base import OPTIONAL, Backend, Epilogue, provides
from ..dtypes import DType, compute_dtype, is_floating, is_storage
from ..errors import DeviceError, DTypeError
from ..shapes import Geometry, dense_strides_like

Array = Any
"""An NDArray or a ``numpy.ndarray``; definitions use the members that both have."""

P = ParamSpec("P")
R = TypeVar("R")

_INT64 = np.dtype(np.int64)
_PLAIN = frozenset({bool, int, float, str, type(None), Geometry})
"""Types of arguments that are no arrays, for which a look for ``dtype`` takes longest."""

OPERATIONS: dict[str, Accelerated[Any, Any]] = {}
"""Every accelerated operation by name, in the order of definition."""
ELEMENTWISE: dict[str, Elementwise] = {}
"""Every optional elementwise operation of ``Backend.unary``, by name."""


class Accelerated(Generic[P, R]):
    """A function of arrays that a backend may accelerate; it is called like its definition."""

    def __init__(
        self, definition: Callable[P, R], floating: bool, wide_results: tuple[int, ...] = ()
    ) -> None:
        self.name = definition.__name__
        self.definition = definition
        self.floating, self.wide_results = floating, wide_results
        self._adapter: Callable[..., R] | None = None
        functools.update_wrapper(self, definition)

    def kernel(self, adapter: Callable[..., R]) -> None:
        """Decorate ``adapter(backend, ...)``, which allocates outputs and calls the kernel."""
        assert self.name in OPTIONAL, f"{self.name} is no optional kernel of Backend"
        self._adapter = adapter

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Return the result of the backend's kernel or, without one, of the definition."""
        arrays = _arrays(args)
        if not arrays:
            return self.definition(*args, **kwargs)
        first, dtype = arrays[0], arrays[0].dtype
        if self.floating and not is_floating(dtype):
            raise DTypeError(
                f"{self.name}: the array must be float32 or float64, got {dtype}; use astype first"
            )
        if is_storage(dtype) and not self._takes_storage(first):
            return self._in_compute_dtype(args, kwargs)
        if isinstance(first, (np.ndarray, np.generic)) or self._adapter is None:
            return self.definition(*args, **kwargs)
        device = first.device
        if self._uniform(device, dtype, arrays[1:]) and self.is_provided_by(device.backend):
            return self._adapter(device.backend, *args, **kwargs)
        return self.definition(*args, **kwargs)

    def _takes_storage(self, first: Array) -> bool:
        """Return True if the array's backend has a kernel that takes its storage dtype."""
        if not self.floating:
            return True
        backend = getattr(getattr(first, "device", None), "backend", None)
        return bool(self.name in getattr(backend, "bfloat16_kernels", ()))

    def _in_compute_dtype(self, args: Sequence[Any], kwargs: dict[str, Any]) -> R:
        """Widen arrays of a storage dtype, compute the result, and round it once."""
        like = _arrays(args)[0].dtype
        wide = compute_dtype(like)

        def rounded(place: int, item: Any) -> Any:
            if place in self.wide_results or getattr(item, "dtype", None) != wide:
                return item
            return item.astype(like)

        results = self(*map(_widened, args), **{k: _widened(v) for k, v in kwargs.items()})
        if isinstance(results, tuple):
            return tuple(rounded(*each) for each in enumerate(results))  # type: ignore[return-value]
        return rounded(0, results)  # type: ignore[no-any-return]

    def is_provided_by(self, backend: Backend) -> bool:
        """Return True if the backend has a kernel for the operation."""
        return provides(backend, self.name)

    def _uniform(self, device: Any, dtype: DType, others: Sequence[Array]) -> bool:
        """Return True if all floating arrays have one dtype, as kernels require.

        Raise DeviceError if the arrays are on several devices.
        """
        for array in others:
            place, other = array.device, array.dtype
            if place is not device and place != device:
                raise DeviceError(
                    f"{self.name}: all arrays must be on one device, got {device} and "
                    f"{place}; move one with to(device)"
                )
            if other is not dtype and other.kind == "f" and other != dtype:
                return bool(other == compute_dtype(dtype))  # parameters of a norm
        return True

    def __repr__(self) -> str:
        return f"<accelerated {self.name}>"


class Elementwise(Accelerated[[Array], Array]):
    """An elementwise function of a floating array that a backend's ``unary`` may compute."""

    def __init__(self, definition: Callable[[Array], Array]) -> None:
        super().__init__(definition, floating=True)
        self._adapter = self._run

    def is_provided_by(self, backend: Backend) -> bool:
        """Return True if the backend's ``unary`` computes this operation."""
        return self.name in backend.optional_unary

    def _run(self, backend: Backend, a: Array) -> Array:
        out = empty_dense(a)
        backend.unary(self.name, a.view, out.view)
        return out


def elementwise(definition: Callable[[Array], Array]) -> Elementwise:
    """Decorate a definition, to make it an elementwise operation and a row of ``ELEMENTWISE``."""
    made = Elementwise(definition)
    ELEMENTWISE[made.name] = made
    return made


def _widened(item: Any) -> Any:
    """Return an argument with arrays of storage dtypes cast to their compute dtype."""
    if isinstance(item, Epilogue):
        return Epilogue(*map(_widened, item))
    if isinstance(item, (list, tuple)) and item and hasattr(item[0], "dtype"):
        return [_widened(each) for each in item]
    dtype = getattr(item, "dtype", None)
    return item.astype(compute_dtype(dtype)) if dtype is not None and is_storage(dtype) else item


def view_or_none(array: Array | None) -> Any:
    """Return the view of an array that is passed to a kernel, or None for None."""
    return None if array is None else array.view


def _arrays(args: Sequence[Any]) -> list[Array]:
    """Return the array arguments, and the items of arguments that are sequences of arrays."""
    found: list[Array] = []
    for item in args:
        kind = type(item)
        if kind in _PLAIN:
            continue
        if hasattr(kind, "dtype"):
            found.append(item)
        elif kind is Epilogue:
            found += [each for each in item if hasattr(each, "dtype")]
        elif isinstance(item, (list, tuple)) and item and hasattr(item[0], "dtype"):
            found += item
    return found


def accelerated(
    floating: bool = True, wide_results: tuple[int, ...] = ()
) -> Callable[[Callable[P, R]], Accelerated[P, R]]:
    """Decorate a definition, to make it an accelerated operation and a row of ``OPERATIONS``.

    ``floating``: raise DTypeError unless the first array is of a floating dtype. On arrays of a
    storage dtype (bfloat16), the results at the indices ``wide_results`` keep the compute dtype
    (float32): they are statistics, or gradients of parameters.
    """

    def register(definition: Callable[P, R]) -> Accelerated[P, R]:
        made = Accelerated(definition, floating, wide_results)
        OPERATIONS[made.name] = made
        return made

    return register


def empty(like: Array, shape: tuple[int, ...], dtype: Any = None) -> Array:
    """Return an uninitialised row-major array on ``like``'s device, by default of its dtype."""
    dtype = like.dtype if dtype is None else np.dtype(dtype)
    if isinstance(like, np.ndarray):
        return np.empty(shape, dtype)
    return like.new_empty(shape, dtype)


def empty_dense(like: Array, *others: Array) -> Array:
    """Return ``empty`` of ``like``'s shape in the memory order of ``like`` (and ``others``)."""
    strides = dense_strides_like(like.shape, like.strides, *(a.strides for a in others))
    return like.new_empty(like.shape, like.dtype, strides)


def full(like: Array, shape: tuple[int, ...], value: float, dtype: Any = None) -> Array:
    """Return a constant row-major array on ``like``'s device, by default of its dtype."""
    xp = like.__array_namespace__()
    dtype = like.dtype if dtype is None else dtype
    return xp.full(shape, value, dtype=dtype, device=like.device)


def as_int64(index: Array) -> Array:
    """Return the array as int64, the dtype that kernels expect of indices and labels."""
    return index if index.dtype == _INT64 else index.astype(_INT64)
