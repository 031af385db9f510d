"""Conformance cases of the optimiser steps over several parameters. Called by ``optional``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product
from typing import Any

import numpy as np

from ... import accelerated
from ...dtypes import DType
from .case import Case
from .placement import HostArray
from .values import FLOATS, large_values

SHAPES: tuple[tuple[int, ...], ...] = ((3,), (2, 5), (1,), (0,), (40_001,))
COUNT = len(SHAPES)
# An optimiser step gets contiguous views with any offset.
PAIRS = (("compact", "compact"), ("offset", "offset"))


def step_cases() -> Iterator[Case]:
    """Yield every case of sgd_step and adam_step."""
    for dtype in FLOATS:
        first, second = _arrays(dtype, 1), [np.abs(host) for host in _arrays(dtype, 2)]
        for momentum, decay, nesterov in product((0.0, 0.9), (0.0, 0.01), (False, True)):
            if momentum or not nesterov:
                settings = (0.1, momentum, 0.9 * momentum, decay, nesterov)
                yield _case("sgd_step", dtype, settings, [first] if momentum else [])
        yield _case("sgd_step", dtype, (0.1, 0.9, 0.0, 0.01, False), [first], in_place=True)
        for decay, decoupled, step in product((0.0, 0.01), (False, True), (1, 7)):
            given = (0.1, 0.9, 0.999, 1e-8, decay, decoupled, step)
            yield _case("adam_step", dtype, given, [first, second])
        given = (0.1, 0.9, 0.999, 1e-8, 0.01, True, 7)
        yield _case("adam_step", dtype, given, [first, second], in_place=True)


def _arrays(dtype: DType, shift: float) -> list[HostArray]:
    return [large_values(shape, dtype) + dtype.type(shift) for shape in SHAPES]


def _groups(items: Any) -> list[list[Any]]:
    return [list(items[i : i + COUNT]) for i in range(0, len(items), COUNT)]


def _case(
    name: str,
    dtype: DType,
    settings: tuple[Any, ...],
    states: list[list[HostArray]],
    in_place: bool = False,
) -> Case:
    """Return a case that compares the new parameters and the states, which are updated in place.

    ``in_place``: the parameters' buffers are also the outputs.
    """
    new = [host if in_place else np.zeros_like(host) for host in _arrays(dtype, 0)]

    def oracle(*inputs: HostArray) -> Any:
        params, grads = _groups([host.astype(np.float64) for host in inputs])
        moved = [[host.astype(np.float64) for host in group] for group in states]
        stepped = getattr(accelerated, name).definition(params, grads, *moved or [[]], *settings)
        return [np.asarray(host).astype(dtype) for host in chain(stepped, *moved)]

    def call(backend: Any, ins: Any, outs: Any) -> None:
        params, grads = _groups(ins)
        stepped, *moved = _groups(outs)
        old = stepped if in_place else params
        getattr(backend, name)(old, grads, *moved or [[]], stepped, *settings)

    inputs = (*_arrays(dtype, 0), *_arrays(dtype, 0.5))
    label = f"{dtype} {settings}{' in place' if in_place else ''}"
    return Case(name, label, inputs, oracle, (), 2e-5, PAIRS, (*chain(new, *states),), call=call)
