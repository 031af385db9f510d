"""Cases of allocate, upload, download, fill, copy and where. Called by ``required``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from operator import methodcaller
from typing import Any

import numpy as np

from ...backends.base import View
from ...backends.writes import note_write
from ...dtypes import COMPUTE_DTYPES, DType
from ...shapes import compact_strides
from .case import PAIRS, Case, Mismatch, compare
from .placement import HostArray
from .values import SHAPES, converted, large_values, scalars_of, values

WRITES = tuple(("compact", layout) for layout in ("compact", "offset", "permuted", "sliced"))
READS = tuple((layout, "compact") for layout, _ in PAIRS)


def array_cases() -> Iterator[Case]:
    """Yield every case of the functions that create, fill and copy arrays."""
    for dtype in COMPUTE_DTYPES:
        host = values((2, 3), dtype)
        yield Case("allocate", f"{dtype}", (host,), lambda a: (), call=_allocate(dtype))
        yield Case("download", f"{dtype}", (host,), lambda a: (), pairs=READS, call=_download)
        yield from _upload_cases(dtype)
        yield from _fill_cases(dtype)
        yield from _copy_cases(dtype)
        yield from _where_cases(dtype)
    wide = large_values((37, 41), np.dtype(np.float32))
    yield Case("copy", "large", (wide,), lambda a: a, pairs=PAIRS)


def _allocate(dtype: DType) -> Any:
    def call(backend: Any, ins: Any, outs: Any) -> None:
        for size in (0, 1, 1000):
            handle = backend.allocate(size, dtype)
            if handle.size != size:
                raise Mismatch(f"handle.size must be {size}, got {handle.size}")
            note_write(handle)  # a handle must accept attributes
            host = large_values((size,), dtype)
            view = View(handle, (size,), (1,), 0, dtype)
            backend.upload(host, view)
            compare(host, backend.download(view), 0.0)

    return call


def _download(backend: Any, ins: Any, outs: Any) -> None:
    first, second = backend.download(ins[0]), backend.download(ins[0])
    if first.strides != tuple(s * first.itemsize for s in compact_strides(first.shape)):
        raise Mismatch(f"the array must be contiguous, got strides {first.strides}")
    compare(first, second, 0.0)
    first[...] = ~first if first.dtype == np.bool_ else first + 1
    compare(second, backend.download(ins[0]), 0.0)  # the results must have been copies


def _upload_cases(dtype: DType) -> Iterator[Case]:
    def put(source: HostArray, label: str) -> Case:
        source.setflags(write=False)

        def call(backend: Any, ins: Any, outs: Any) -> None:
            backend.upload(source, outs[0])

        return Case("upload", f"{dtype} {label}", (), lambda: source, pairs=WRITES, call=call)

    for shape in SHAPES:
        yield put(values(shape, dtype), f"{shape}")
    yield put(values((3, 2), dtype).T, "transposed host array")
    yield put(values((3, 4), dtype)[::-1, ::2], "sliced host array with a negative step")
    yield put(np.broadcast_to(values((3,), dtype), (2, 3)), "broadcast host array")


def _fill_cases(dtype: DType) -> Iterator[Case]:
    for scalar in scalars_of(dtype):
        for shape in ((2, 3), (), (0,), (2, 1, 3, 1, 2, 1, 2, 2)):
            filled = np.full(shape, converted(scalar, dtype), dtype)
            label = f"{dtype} {shape} with {scalar}"
            case = Case("fill", label, (), partial(np.copy, filled), (scalar,), pairs=WRITES)
            yield replace(case, signed_zeros=dtype.kind == "f")


def _copy_cases(source: DType) -> Iterator[Case]:
    for shape in SHAPES:
        yield Case("copy", f"{source} {shape}", (values(shape, source),), np.copy)
    for target in COMPUTE_DTYPES:
        host = _castable(values((2, 3, 4), source), target)
        cast = methodcaller("astype", target)
        yield Case("copy", f"{source} to {target}", (host,), cast, pairs=PAIRS)


def _castable(host: HostArray, target: DType) -> HostArray:
    """Return values with a cast that C defines: finite, and not negative for unsigned dtypes."""
    if host.dtype.kind != "f" or target.kind in "fb":
        return host
    host = np.where(np.isfinite(host), host, 5)
    return np.abs(host) if target.kind == "u" else host


def _where_cases(dtype: DType) -> Iterator[Case]:
    scalar: Any = True if dtype == np.bool_ else 2
    given: list[tuple[Any, Any]] = [(None, None), (scalar, None), (scalar, not scalar)]
    given += [(None, each) for each in scalars_of(dtype)]
    for scalars in given:
        for shape in ((2, 3, 4), *SHAPES):
            yield _where(dtype, shape, scalars)


def _where(dtype: DType, shape: tuple[int, ...], scalars: tuple[Any, Any]) -> Case:
    """Return a case of ``where`` in which scalars that are not None replace the operands."""

    def oracle(condition: HostArray, *operands: HostArray) -> HostArray:
        given = zip(scalars, operands, strict=True)
        return np.where(condition, *(b if a is None else converted(a, dtype) for a, b in given))

    def call(backend: Any, ins: Any, outs: Any) -> None:
        given = zip(scalars, ins[1:], strict=True)
        backend.where(ins[0], *(b if a is None else a for a, b in given), outs[0])

    a = values(shape, dtype)
    inputs = (values(shape, np.dtype(bool)), a, a.ravel()[::-1].reshape(shape))
    pairs = PAIRS if shape == (2, 3, 4) else PAIRS[:1]
    label = f"{dtype} {shape} scalars {scalars}"
    zeros = dtype.kind == "f"
    return Case("where", label, inputs, oracle, pairs=pairs, signed_zeros=zeros, call=call)
