"""The ten required functions of the WebGPU backend, which turn views into kernel parameters.

``optional`` adds the other kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ...dtypes import DType
from ...shapes import compact_strides, product
from ..base import Backend, Operand, Scalar, View
from . import sources
from .adapters import name_of, open_device
from .memory import (
    WORD,
    WORDS,
    Buffer,
    from_words,
    require_dtype,
    scalar_word,
    to_words,
)
from .queue import ROW, Queue

THREADS = 256
Strides = tuple[int, ...]


class RequiredKernels(Backend):
    """Base class with the required kernels and the services of one adapter."""

    dtypes = tuple(WORDS)
    optional_unary = tuple(
        "sigmoid log_sigmoid softplus silu normal_cdf gelu gelu_tanh gelu_slope "
        "gelu_tanh_slope".split()
    )

    def __init__(self, adapter: Any, name: str) -> None:
        self.name = name
        self.adapter_name = name_of(adapter)
        self.queue = Queue(open_device(adapter))

    # ---- memory ------------------------------------------------------------------------------

    def allocate(self, size: int, dtype: DType) -> Buffer:
        require_dtype(dtype)
        return self.queue.take(size)

    def upload(self, source: NumpyArray[Any], out: View) -> None:
        words = to_words(source)
        if not words.size:
            return
        if is_compact(out):
            self.queue.write(out.handle, out.offset * WORD, words)
            return
        staged = self._compact_like(out)
        self.queue.write(staged.handle, 0, words)
        self.copy(staged, out)

    def download(self, a: View) -> NumpyArray[Any]:
        if 0 in a.shape:
            return np.empty(a.shape, a.dtype)
        if not is_compact(a):
            staged = self._compact_like(a)
            self.copy(a, staged)
            a = staged
        found = self.queue.read(a.handle, a.offset * WORD, product(a.shape) * WORD)
        return from_words(found, a.dtype).reshape(a.shape)

    def _compact_like(self, a: View) -> View:
        handle = self.queue.take(product(a.shape))
        return View(handle, a.shape, compact_strides(a.shape), 0, a.dtype)

    # ---- elementwise -------------------------------------------------------------------------

    def fill(self, out: View, value: Scalar) -> None:
        source = sources.conversion(out.dtype, out.dtype)
        self._elementwise(source, out.dtype, out, value)

    def copy(self, a: View, out: View) -> None:
        self._elementwise(sources.conversion(a.dtype, out.dtype), out.dtype, out, a)

    def unary(self, name: str, a: View, out: View) -> None:
        self._elementwise(sources.operation(name, a.dtype), a.dtype, out, a)

    def binary(self, name: str, a: Operand, b: Operand, out: View) -> None:
        dtype = a.dtype if isinstance(a, View) else b.dtype if isinstance(b, View) else out.dtype
        self._elementwise(sources.operation(name, dtype), dtype, out, a, b)

    def where(self, condition: View, a: Operand, b: Operand, out: View) -> None:
        self._elementwise(sources.selection(), out.dtype, out, condition, a, b)

    def _elementwise(self, source: str, dtype: DType, out: View, *operands: Operand) -> None:
        """Run a kernel of elementwise.wgsl on operands of one dtype (and where's condition)."""
        if 0 in out.shape:
            return
        offsets, words, scalars = [out.offset, 0, 0, 0], [0, 0, 0, 0], 0
        strides: list[Strides] = [out.strides]
        buffers: list[Buffer] = [out.handle] * 4
        for i, operand in enumerate(operands, 1):
            if isinstance(operand, View):
                offsets[i], buffers[i] = operand.offset, operand.handle
                strides.append(operand.strides)
            else:
                words[i] = scalar_word(operand, dtype)
                scalars |= 1 << i
                strides.append((0,) * len(out.shape))
        scalars |= sum(1 << i for i in range(len(operands) + 1, 4))
        axes = merged(out.shape, tuple(strides))
        count, groups = product(out.shape), grid(-(-product(out.shape) // THREADS))
        parameters = [count, len(axes), scalars, ROW, *offsets, *words]
        for size, steps in axes:
            parameters += [size, 0, 0, 0, *steps, *([0] * (4 - len(steps)))]
        self.queue.dispatch(source, parameters, buffers, groups)

    # ---- reductions and products -------------------------------------------------------------

    def reduce(self, name: str, a: View, out: View) -> None:
        self._reduce(sources.reduction(name, a.dtype), _identity(name, a.dtype), a, out)

    def _reduce(self, source: str, identity: Scalar, a: View, out: View) -> None:
        """Run a kernel of reduce.wgsl."""
        if 0 in out.shape:
            return
        reduced = [i for i, (n, m) in enumerate(zip(a.shape, out.shape)) if n != m]
        kept = [i for i, n in enumerate(a.shape) if i not in reduced]
        steps = out.strides, a.strides
        outer = merged(*chosen(kept, a.shape, steps))
        inner = merged(*chosen(reduced, a.shape, steps))
        results, each = product(out.shape), product(tuple(a.shape[i] for i in reduced))
        lanes = lanes_of(each)
        across = bool(outer) and abs(outer[-1][1][1]) == 1
        parameters = [results, len(outer), lanes, ROW]
        parameters += [out.offset, a.offset, scalar_word(identity, a.dtype), int(across)]
        parameters += [each, len(inner), 0, 0]
        for size, (step_out, step_a) in (*outer, *inner):
            parameters += [size, step_out, step_a, 0]
        groups = grid(-(-results * lanes // THREADS))
        self.queue.dispatch(source, parameters, [out.handle, a.handle], groups)

    def matmul(self, a: View, b: View, out: View) -> None:
        if 0 in out.shape:
            return
        views = out, a, b
        (m, n), k = out.shape[-2:], a.shape[-1]
        batches = merged(out.shape[:-2], tuple(view.strides[:-2] for view in views))
        parameters = [m, k, n, len(batches), *(view.offset for view in views), 0]
        parameters += [*(view.strides[-2] for view in views), 0]
        parameters += [*(view.strides[-1] for view in views), 0]
        for size, steps in batches:
            parameters += [size, *steps]
        (source, across), count = sources.tiles(a.dtype, n, "matmul"), product(out.shape[:-2])
        buffers = [view.handle for view in views]
        for first in range(0, count, ROW):
            parameters[7] = first
            groups = (-(-n // across), -(-m // 64), min(count - first, ROW))
            self.queue.dispatch(source, parameters, buffers, groups)

    # ---- services ----------------------------------------------------------------------------

    def memory_stats(self) -> dict[str, int]:
        self.queue.pool.collect()
        names = ("in_use", "cached", "peak", "allocations", "reuses")
        return {name: getattr(self.queue.pool, name) for name in names}

    def empty_cache(self) -> None:
        self.queue.forget()

    def synchronize(self) -> None:
        self.queue.wait()

    def record_graph(self, run: Callable[[], None]) -> Callable[[], None]:
        return self.queue.record(run)


def is_compact(view: View) -> bool:
    """Return True if the view is contiguous in row-major order."""
    return all(
        n == 1 or step == compact
        for n, step, compact in zip(view.shape, view.strides, compact_strides(view.shape))
    )


def lanes_of(elements: int) -> int:
    """Return the number of lanes (threads) that reduce this many elements to one result."""
    lanes = 1
    while lanes < min(THREADS, elements / 8):
        lanes *= 2
    return lanes


def words(*values: float) -> list[int]:
    """Return the float32 words of floats as int32."""
    return list(struct.unpack(f"<{len(values)}i", struct.pack(f"<{len(values)}f", *values)))


def grid(groups: int) -> tuple[int, int, int]:
    """Return the grid of a dispatch with this many workgroups, in rows of ``ROW``."""
    return (groups, 1, 1) if groups <= ROW else (ROW, -(-groups // ROW), 1)


@lru_cache(maxsize=4096)
def merged(shape: tuple[int, ...], strides: tuple[Strides, ...]) -> tuple[tuple[int, Strides], ...]:
    """Merge axes into as few (size, strides of all views) as visit the same elements.

    The axes are in the memory order of the first view, so that neighbouring threads write
    neighbouring words.
    """
    axes = [(n, steps) for n, *steps in zip(shape, *strides) if n != 1]
    axes.sort(key=lambda axis: [-abs(step) for step in axis[1]])
    found: list[tuple[int, list[int]]] = []
    for n, steps in axes:
        if found and all(outer == n * step for outer, step in zip(found[-1][1], steps)):
            found[-1] = (found[-1][0] * n, steps)
        else:
            found.append((n, steps))
    return tuple((n, tuple(steps)) for n, steps in found)


def chosen(
    axes: list[int], shape: tuple[int, ...], strides: tuple[Strides, ...]
) -> tuple[tuple[int, ...], tuple[Strides, ...]]:
    """Return the shape and strides of some axes."""
    return tuple(shape[i] for i in axes), tuple(tuple(s[i] for i in axes) for s in strides)


def _identity(name: str, dtype: DType) -> Scalar:
    if name in ("max", "min"):
        if dtype.kind == "f":
            return float("-inf" if name == "max" else "inf")
        # int64 is stored in 32 bits, so it has int32's range.
        info = np.iinfo(np.int32 if dtype == np.int64 else dtype)
        return int(info.min if name == "max" else info.max)
    return int(name in ("prod", "all"))
