"""Conformance cases of the optimiser steps over several parameters. Called by ``optional``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from ... import accelerated
from ...dtypes import DType
from .case import Case
from .placement import HostArray
from .values import large_values

SHAPES: tuple[tuple[int, ...], ...] = ((3,), (2, 5), (1,), (0,), (40_001,))
COUNT = len(SHAPES)
# An optimiser step gets compact views with any offset.
PAIRS = (("compact", "compact"), ("offset", "offset"))


def step_cases() -> Iterator[Case]:
    """Yield every case of sgd_step and adam_step."""
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        for momentum, decay, nesterov in product((0.0, 0.9), (0.0, 0.01), (False, True)):
            if momentum or not nesterov:
                yield _sgd(dtype, (0.1, momentum, 0.9 * momentum, decay, nesterov))
        yield _sgd(dtype, (0.1, 0.9, 0.0, 0.01, False), in_place=True)
        for decay, decoupled, step in product((0.0, 0.01), (False, True), (1, 7)):
            yield _adam(dtype, (0.1, 0.9, 0.999, 1e-8, decay, decoupled, step))
        yield _adam(dtype, (0.1, 0.9, 0.999, 1e-8, 0.01, True, 7), in_place=True)


def _arrays(dtype: DType, shift: float) -> list[HostArray]:
    return [large_values(shape, dtype) + dtype.type(shift) for shape in SHAPES]


def _groups(items: Any) -> list[list[Any]]:
    return [list(items[i : i + COUNT]) for i in range(0, len(items), COUNT)]


def _case(
    name: str,
    dtype: DType,
    settings: tuple[Any, ...],
    states: list[list[HostArray]],
    in_place: bool,
) -> Case:
    """Return a case whose outputs are the new parameters and the states, changed in place.

    ``in_place``: the parameters' buffers are the outputs as well.
    """
    new = [host if in_place else np.zeros_like(host) for host in _arrays(dtype, 0)]
    state = [host for group in states for host in group]

    def oracle(*inputs: HostArray) -> Any:
        params, grads = _groups([host.astype(np.float64) for host in inputs])
        moved = [[host.astype(np.float64) for host in group] for group in states]
        if name == "sgd_step" and not moved:
            moved = [[]]
        stepped = getattr(accelerated, name).definition(params, grads, *moved, *settings)
        flat = [host for group in moved for host in group]
        return tuple(np.asarray(host).astype(dtype) for host in (*stepped, *flat))

    def call(backend: Any, ins: Any, outs: Any) -> None:
        params, grads = _groups(ins)
        stepped, *moved = _groups(outs)
        if name == "sgd_step" and not moved:
            moved = [[]]
        old = stepped if in_place else params
        getattr(backend, name)(old, grads, *moved, stepped, *settings)

    inputs = (*_arrays(dtype, 0), *_arrays(dtype, 0.5))
    label = f"{dtype} {settings}{' in place' if in_place else ''}"
    return Case(name, label, inputs, oracle, (), 2e-5, PAIRS, (*new, *state), call=call)


def _sgd(dtype: DType, settings: tuple[Any, ...], in_place: bool = False) -> Case:
    states = [_arrays(dtype, 1)] if settings[1] else []
    return _case("sgd_step", dtype, settings, states, in_place)


def _adam(dtype: DType, settings: tuple[Any, ...], in_place: bool = False) -> Case:
    squares = [np.abs(host) for host in _arrays(dtype, 2)]
    return _case("adam_step", dtype, settings, [_arrays(dtype, 1), squares], in_place)
