"""The compiled kernels of the data module, with their NumPy definitions as fallback.

The compiled functions are in the submodule ``data`` of the CPU backend's extension. Samplers,
transforms and datasets call them through this file.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import backends
from ...backends import native as compiled
from ...backends import philox
from ...config import MAX_DIMS
from ...errors import DeviceError
from .buffer_pool import empty

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

NUMPYS_ROW = 16
"""Minimum bytes of a row for the compiled gather; threads gain nothing on labels and the like."""


@lru_cache(maxsize=1)
def kernels() -> Any | None:
    """Return the compiled submodule, or None if it was not built."""
    try:
        backends.get("cpu")
    except DeviceError:
        return None
    return getattr(sys.modules[compiled.MODULE], "data", None)


def has(name: str) -> bool:
    """Return True if there is a compiled kernel of this name."""
    return hasattr(kernels(), name)


def words(seed: int, epoch: int, indices: Integers, stream: int, count: int) -> philox.Words:
    """Return ``philox.words(...)``, from the compiled kernel if there is one."""
    best: Callable[..., philox.Words] = getattr(kernels(), "philox_words", philox.words)
    return best(seed, epoch, indices, stream, count)


def permutation(positions: Integers, length: int, seed: int, epoch: int) -> Integers:
    """Return ``philox.permutation(...)``, from the compiled kernel if there is one."""
    best: Callable[..., Integers] = getattr(kernels(), "permute_indices", philox.permutation)
    return best(positions, length, seed, epoch)


def gather_rows(source: Array, indices: Integers, out: Array | None = None) -> Array:
    """Return ``source[indices]`` along the first axis, in C order, written to ``out`` if given.

    indices: int64 ``(n,)`` in [0, len(source)). out: ``(n, ...)`` with the dtype of the source.
    Raises IndexError if an index is out of bounds.
    """
    if out is None:
        if source.ndim == 1:
            return source[indices]
        out = empty((len(indices), *source.shape[1:]), source.dtype)
    row = source.dtype.itemsize * math.prod(source.shape[1:])
    compiled_takes = source.dtype.kind in "biuf" and source.ndim < MAX_DIMS
    if row >= NUMPYS_ROW and compiled_takes and has("gather_rows"):
        kernels().gather_rows(source, indices, out)  # type: ignore[union-attr]
    elif len(indices):
        out[...] = source[indices]  # np.take would copy a non-contiguous source
    return out


def run_images(
    steps: Sequence[tuple[str, tuple[float, ...]]],
    parameters: Sequence[npt.NDArray[np.float64]],
    images: Array | list[Array],
    indices: Integers | None,
    out: Array,
    threads: int,
) -> None:
    """Gather a batch of images, apply all steps to each in one pass, and write ``out``.

    images: bytes or float32 ``(N, H, W, C)``, from which the rows ``indices`` are gathered, or a
    list of images ``(H, W, C)``. parameters: float64 ``(n, k)`` for each step. out: ``(n, ...)``.
    threads: 0 for all threads of the pool, 1 for the calling thread. Raises ValueError if steps,
    parameters and shapes do not match.
    """
    kernels().run_images(list(steps), list(parameters), images, indices, out, threads)  # type: ignore[union-attr]
