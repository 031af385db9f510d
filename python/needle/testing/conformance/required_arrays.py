"""Cases of allocate, upload, download, fill, copy and where. Called by ``required``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backends.base import View
from ...backends.writes import note_write
from ...dtypes import COMPUTE_DTYPES, DType
from ...shapes import compact_strides
from .case import PAIRS, Case, Mismatch, compare, kernel
from .placement import HostArray
from .values import SHAPES, converted, large_values, scalars_of, values

WRITES = tuple(("compact", layout) for layout in ("compact", "offset", "permuted", "sliced"))


def array_cases() -> Iterator[Case]:
    """Yield every case of the functions that make, fill and move arrays."""
    for dtype in COMPUTE_DTYPES:
        yield Case("allocate", f"{dtype}", (values((1,), dtype),), lambda a: (), _allocate(dtype))
        yield Case(
            "download",
            f"{dtype}",
            (values((2, 3), dtype),),
            lambda a: (),
            _download,
            pairs=tuple((layout, "compact") for layout, _ in PAIRS),
        )
    for dtype in COMPUTE_DTYPES:
        yield from _upload_cases(dtype)
        yield from _fill_cases(dtype)
    yield from _copy_cases()
    for dtype in COMPUTE_DTYPES:
        yield from _where_cases(dtype)


def _allocate(dtype: DType) -> Any:
    def call(backend: Any, ins: Any, outs: Any) -> None:
        for size in (0, 1, 1000):
            handle = backend.allocate(size, dtype)
            if handle.size != size:
                raise Mismatch(f"handle.size must be {size}, got {handle.size}")
            note_write(handle)  # a handle takes attributes
            host = large_values((size,), dtype)
            view = View(handle, (size,), (1,), 0, dtype)
            backend.upload(host, view)
            compare(host, backend.download(view), 0.0)

    return call


def _download(backend: Any, ins: Any, outs: Any) -> None:
    first, second = backend.download(ins[0]), backend.download(ins[0])
    if first.strides != tuple(s * first.itemsize for s in compact_strides(first.shape)):
        raise Mismatch(f"the array must be compact, got strides {first.strides}")
    compare(first, second, 0.0)
    first[...] = ~first if first.dtype == np.bool_ else first + 1
    compare(
        second, backend.download(ins[0]), 0.0
    )  # download returns a copy, so the buffer is unchanged


def _upload_cases(dtype: DType) -> Iterator[Case]:
    def put(source: HostArray, label: str) -> Case:
        source.setflags(write=False)

        def call(backend: Any, ins: Any, outs: Any) -> None:
            backend.upload(source, outs[0])

        return Case("upload", f"{dtype} {label}", (), lambda: (source,), call, pairs=WRITES)

    for shape in SHAPES:
        yield put(values(shape, dtype), f"{shape}")
    yield put(values((3, 2), dtype).T, "transposed host array")
    yield put(values((3, 4), dtype)[::-1, ::2], "sliced host array with a negative step")
    yield put(np.broadcast_to(values((3,), dtype), (2, 3)), "broadcast host array")


def _fill_cases(dtype: DType) -> Iterator[Case]:
    for scalar in scalars_of(dtype):
        for shape in ((2, 3), (), (0,), (2, 1, 3, 1, 2, 1, 2, 2)):

            def oracle(scalar: Any = scalar, shape: Any = shape) -> tuple[HostArray, ...]:
                return (np.full(shape, converted(scalar, dtype), dtype),)

            def call(backend: Any, ins: Any, outs: Any, scalar: Any = scalar) -> None:
                backend.fill(outs[0], scalar)

            label = f"{dtype} {shape} with {scalar}"
            yield Case("fill", label, (), oracle, call, pairs=WRITES, signed_zeros=_signed(dtype))


def _signed(dtype: DType) -> bool:
    """Return True if the dtype has a zero of each sign."""
    return dtype.kind == "f"


def _copy_cases() -> Iterator[Case]:
    call = kernel("copy")
    for source in COMPUTE_DTYPES:
        for target in COMPUTE_DTYPES:
            host = _castable(values((2, 3, 4), source), target)

            def oracle(a: HostArray, target: DType = target) -> tuple[HostArray, ...]:
                return (a.astype(target),)

            label = f"{source} to {target}"
            for shape in SHAPES if source == target else ():
                yield Case("copy", f"{label} {shape}", (values(shape, source),), oracle, call)
            yield Case("copy", label, (host,), oracle, call, pairs=PAIRS)
    wide = large_values((37, 41), np.dtype(np.float32))
    yield Case("copy", "large", (wide,), lambda a: (a,), call, pairs=PAIRS)


def _castable(host: HostArray, target: DType) -> HostArray:
    """Return values whose conversion C defines: finite, and none below 0 for unsigned."""
    if host.dtype.kind != "f" or target.kind in "fb":
        return host
    host = np.where(np.isfinite(host), host, 5)
    return np.abs(host) if target.kind == "u" else host


def _where_cases(dtype: DType) -> Iterator[Case]:
    scalar: Any = True if dtype == np.bool_ else 2
    given: list[tuple[Any, Any]] = [(None, None), (scalar, None), (scalar, not scalar)]
    given += [(None, each) for each in scalars_of(dtype)]
    for left, right in given:

        def oracle(c: HostArray, a: Any, b: Any, left: Any = left, right: Any = right) -> Any:
            a = a if left is None else converted(left, dtype)
            return (np.where(c, a, b if right is None else converted(right, dtype)),)

        def call(backend: Any, ins: Any, outs: Any, left: Any = left, right: Any = right) -> None:
            a = ins[1] if left is None else left
            backend.where(ins[0], a, ins[2] if right is None else right, outs[0])

        for shape in ((2, 3, 4), *SHAPES):
            a = values(shape, dtype)
            inputs = (values(shape, np.dtype(bool)), a, a.ravel()[::-1].reshape(shape))
            pairs = PAIRS if shape == (2, 3, 4) else PAIRS[:1]
            label = f"{dtype} {shape} scalars {left}, {right}"
            zeros = _signed(dtype)
            yield Case("where", label, inputs, oracle, call, pairs=pairs, signed_zeros=zeros)
