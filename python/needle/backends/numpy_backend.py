# Trail 7 of 30: the ten functions of a backend, in NumPy.
# Next: src/core/view.h
"""The NumPy backend, device ``cpu_numpy``: the ten required functions, each a NumPy call.

The other backends are tested against it, and it needs no compiler. A handle is a one-dimensional
``Buffer``. It overrides only optional kernels whose definition is a Python loop although NumPy has
a function for them; the other definitions already call NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..dtypes import COMPUTE_DTYPES, NAMES, DType, compute_dtype, is_floating, is_storage
from .base import Backend, Operand, Scalar, View
from .numpy_functions import BINARY_FUNCTIONS, UNARY_FUNCTIONS, quiet

Array = NumpyArray[Any]


class Buffer(np.ndarray[Any, Any]):
    """A handle: memory, and what needle records about it (see ``writes``)."""

    written = 0
    shared = False


def array_of(view: View) -> Array:
    """Return the view as a writable NumPy array on the handle's memory."""
    handle, shape, strides, offset, dtype = view
    if is_storage(dtype):
        return array_of(View(handle, shape, strides, offset, _buffer_dtype(dtype))).view(dtype)
    if 0 in shape:
        return np.empty(shape, dtype)
    size = dtype.itemsize
    return np.ndarray(
        shape, dtype, buffer=handle, offset=offset * size, strides=[s * size for s in strides]
    )


def _buffer_dtype(dtype: DType) -> DType:
    """Return a buffer's dtype: unsigned integers in place of the dtypes of ml_dtypes.

    NumPy's buffer protocol does not support those.
    """
    return np.dtype(f"u{dtype.itemsize}") if is_storage(dtype) else dtype


def _values(view: View) -> Array:
    """Return the array with which NumPy computes: for bfloat16, a float32 copy."""
    return array_of(view).astype(compute_dtype(view.dtype), copy=False)


def _result(out: View) -> Array:
    """Return the array that NumPy writes to; ``_store`` rounds it to bfloat16."""
    return np.empty(out.shape, compute_dtype(out.dtype)) if is_storage(out.dtype) else array_of(out)


def _store(result: Array, out: View) -> None:
    if is_storage(out.dtype):
        array_of(out)[...] = result


def _convert(value: Scalar, dtype: DType) -> Array:
    """Return the scalar as a 0-d array of the dtype, converted as in C (integers wrap around)."""
    return np.asarray(value).astype(compute_dtype(dtype))


def _pair(a: Operand, b: Operand, dtype: DType) -> tuple[Array, Array]:
    return (
        _values(a) if isinstance(a, View) else _convert(a, dtype),
        _values(b) if isinstance(b, View) else _convert(b, dtype),
    )


class NumpyBackend(Backend):
    """The functions of the interface, written with NumPy."""

    name = "cpu_numpy"
    dtypes = NAMES

    def allocate(self, size: int, dtype: DType) -> Buffer:
        return np.empty(size, _buffer_dtype(dtype)).view(Buffer)

    def upload(self, source: Array, out: View) -> None:
        array_of(out)[...] = source

    def download(self, a: View) -> Array:
        return np.array(array_of(a), order="C")

    def fill(self, out: View, value: Scalar) -> None:
        with quiet():
            array_of(out)[...] = _convert(value, out.dtype)

    def copy(self, a: View, out: View) -> None:
        with quiet():
            result = _result(out)
            np.copyto(result, _values(a), casting="unsafe")
            _store(result, out)

    def unary(self, name: str, a: View, out: View) -> None:
        with quiet():
            result = _result(out)
            UNARY_FUNCTIONS[name](_values(a), out=result)
            _store(result, out)

    def binary(self, name: str, a: Operand, b: Operand, out: View) -> None:
        dtype = a.dtype if isinstance(a, View) else b.dtype if isinstance(b, View) else out.dtype
        with quiet():
            left, right = _pair(a, b, dtype)
            result = _result(out)
            BINARY_FUNCTIONS[name](left, right, out=result)
            _store(result, out)

    def where(self, condition: View, a: Operand, b: Operand, out: View) -> None:
        with quiet():
            left, right = _pair(a, b, out.dtype)
            array_of(out)[...] = np.where(array_of(condition), left, right)

    def reduce(self, name: str, a: View, out: View) -> None:
        axes = tuple(i for i, n in enumerate(out.shape) if n == 1)
        options: dict[str, Any] = {}
        if name in ("sum", "prod"):
            # NumPy sums pairwise only along the last axis; float64 is accurate along all axes.
            options["dtype"] = np.float64 if is_floating(a.dtype) else a.dtype
        with quiet():
            result = getattr(np, name)(_values(a), axis=axes, keepdims=True, **options)
            np.copyto(array_of(out), result, casting="unsafe")

    def matmul(self, a: View, b: View, out: View) -> None:
        with quiet():
            result = _result(out)
            np.matmul(_values(a), _values(b), out=result)
            _store(result, out)

    # ---- optional ----------------------------------------------------------------------------

    def gather(self, a: View, index: View, out: View) -> None:
        array_of(out)[...] = array_of(a)[array_of(index)]

    def scatter(self, a: View, index: View, out: View) -> None:
        array_of(out)[array_of(index)] = array_of(a)

    def scatter_add(self, a: View, index: View, out: View) -> None:
        with quiet():
            total = _values(out)
            np.add.at(total, array_of(index), _values(a))
            _store(total, out)

    def one_hot(self, index: View, out: View) -> None:
        array_of(out)[...] = array_of(index)[:, None] == np.arange(out.shape[1])

    def argmax(self, a: View, out: View, axis: int) -> None:
        if 0 not in out.shape:  # NumPy raises for an empty axis even if the result is empty
            array_of(out)[...] = np.argmax(_values(a), axis=axis, keepdims=True)

    def argmin(self, a: View, out: View, axis: int) -> None:
        if 0 not in out.shape:  # NumPy raises for an empty axis even if the result is empty
            array_of(out)[...] = np.argmin(_values(a), axis=axis, keepdims=True)

    # ---- services ----------------------------------------------------------------------------

    def adopt(self, source: Array) -> Buffer | None:
        flags = source.flags
        if not (flags.c_contiguous and flags.writeable and flags.aligned):
            return None
        if source.dtype not in COMPUTE_DTYPES:
            return None
        return source.reshape(-1).view(Buffer)

    def export(self, a: View) -> Array | None:
        return array_of(a)
