"""Conformance cases of the optional kernels; the definitions in ``accelerated`` are the oracle.

A definition runs on NumPy arrays, floats in float64. The families of images and of optimiser steps
are in ``optional_images`` and ``optional_steps``. Called by ``run``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ... import accelerated
from ...dtypes import TABLE, DType
from .case import PAIRS, Case
from .optional_images import image_cases
from .optional_steps import step_cases
from .placement import HostArray
from .values import in_float64, large_values, values

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
SLACK = 2e-5


def optional_cases() -> Iterator[Case]:
    """Every case of the optional kernels."""
    for dtype in FLOATS:
        yield from _relu_cases(dtype)
        yield from _bias_relu_cases(dtype)
        yield from _softmax_cases(dtype)
        yield from _random_cases(dtype)
        yield from _loss_cases(dtype)
        yield from _norm_cases(dtype)
        yield from _fused_norm_cases(dtype)
    for row in TABLE:
        yield from _row_cases(row.dtype)
        yield from _extreme_cases(row.dtype)
    yield from image_cases()
    yield from step_cases()


def _kernel(name: str, *parameters: Any) -> Callable[[Any, Any, Any], None]:
    """The kernel called as the interface orders its arguments: inputs, outputs, parameters."""

    def call(backend: Any, ins: Any, outs: Any) -> None:
        getattr(backend, name)(*ins, *outs, *parameters)

    return call


def _relu_cases(dtype: DType) -> Iterator[Case]:
    for shape in ((), (7,), (3, 5), (2, 3, 4), (0, 3), (5, 131)):
        y, grad = large_values(shape, dtype), large_values(shape, dtype)[::-1] if shape else None
        grad = np.ones((), dtype) if grad is None else grad.copy()
        oracle, call = in_float64(accelerated.relu_grad.definition), _kernel("relu_grad")
        yield Case("relu_grad", f"{dtype} {shape}", (grad, y), oracle, call, pairs=PAIRS)


def _random_cases(dtype: DType) -> Iterator[Case]:
    settings = (("uniform", -2.0, 5.0), ("normal", 0.5, 2.0), ("bernoulli", 0.3, 4.0))
    pairs = tuple(("compact", out) for _, out in PAIRS)
    for name, a, b in (*settings, ("bernoulli", 0.0, 1.0), ("bernoulli", 1.0, 1.0)):
        for shape, seed, draw in (((), 0, 0), ((3, 0), 1, 2), ((67, 33), 2**64 - 1, 2**32 - 1)):

            def oracle(*_: HostArray, given: Any = (shape, name, seed, draw, a, b)) -> Any:
                out = np.empty(given[0], dtype)
                accelerated.random.definition(out, *given[1:])
                return (out,)

            def call(backend: Any, _: Any, outs: Any, given: Any = (name, seed, draw, a, b)) -> Any:
                backend.random(given[0], outs[0], *given[1:])

            label = f"{name} {dtype} {shape} seed {seed} draw {draw}"
            yield Case("random", label, (), oracle, call, pairs=pairs)


def _bias_relu_cases(dtype: DType) -> Iterator[Case]:
    for shape in ((7,), (3, 5), (2, 3, 4, 6), (0, 3), (3, 0), (67, 33)):
        a, bias = large_values(shape, dtype), large_values(shape[-1:], dtype)[::-1].copy()
        y, grad = accelerated.bias_relu.definition(a, bias), large_values(shape, dtype)[::-1].copy()
        for name, inputs in (("bias_relu", (a, bias)), ("bias_relu_grad", (grad, y))):
            oracle = in_float64(getattr(accelerated, name).definition)
            yield Case(name, f"{dtype} {shape}", inputs, oracle, _kernel(name), SLACK, pairs=PAIRS)


def _softmax_cases(dtype: DType) -> Iterator[Case]:
    ordinary = [large_values(s, dtype) for s in ((4,), (3, 5), (2, 3, 4), (1, 1), (0, 3), (5, 131))]
    special = np.array([[1e4, -1e4, 0], [-np.inf, 0, 1], [np.nan, 0, 1]], dtype)
    for name in ("softmax", "log_softmax"):
        for host in (*ordinary, special):
            for axis in range(host.ndim):
                if name == "log_softmax" and host is special and axis == 0:
                    continue
                definition = getattr(accelerated, name).definition

                def oracle(a: HostArray, run: Any = definition, axis: int = axis) -> Any:
                    return in_float64(lambda wide: run(wide, axis))(a)

                label = f"{dtype} {host.shape} axis {axis}"
                yield Case(name, label, (host,), oracle, _kernel(name, axis), SLACK, pairs=PAIRS)
    for host in (*ordinary, special):
        for axes in {(0,), (host.ndim - 1,), tuple(range(host.ndim))}:
            if 0 in (host.shape[axis] for axis in axes):
                continue

            def total(a: HostArray, axes: Any = axes) -> Any:
                return in_float64(lambda wide: accelerated.logsumexp.definition(wide, axes, True))(
                    a
                )

            label = f"{dtype} {host.shape} over {axes}"
            yield Case("logsumexp", label, (host,), total, _kernel("logsumexp"), SLACK, pairs=PAIRS)


def _loss_cases(dtype: DType) -> Iterator[Case]:
    for n, classes in ((1, 1), (3, 4), (0, 3), (17, 131)):
        logits = large_values((n, classes), dtype) * (100 if classes == 4 else 1)
        labels = np.arange(n, dtype=np.int64) * 7 % classes
        grad = large_values((n,), dtype)
        for smoothing in (0.0, 0.1):

            def loss(a: HostArray, ids: HostArray, smoothing: float = smoothing) -> Any:
                run = accelerated.cross_entropy.definition
                return in_float64(lambda a, ids: run(a, ids, smoothing))(a, ids)

            def slope(
                g: HostArray, a: HostArray, ids: HostArray, smoothing: Any = smoothing
            ) -> Any:
                run = accelerated.cross_entropy_grad.definition
                return in_float64(lambda g, a, ids: run(g, a, ids, smoothing))(g, a, ids)

            label = f"{dtype} {(n, classes)} smoothing {smoothing}"
            call = _kernel("cross_entropy", smoothing)
            yield Case("cross_entropy", label, (logits, labels), loss, call, SLACK, pairs=PAIRS)
            call, inputs = _kernel("cross_entropy_grad", smoothing), (grad, logits, labels)
            yield Case("cross_entropy_grad", label, inputs, slope, call, SLACK, pairs=PAIRS)


def _norm_cases(dtype: DType) -> Iterator[Case]:
    eps = 1e-3
    for shape in ((4, 3), (2, 3, 3, 5), (7, 1), (67, 33)):
        x, grad = large_values(shape, dtype) + 5, large_values(shape, dtype)[::-1].copy()
        weight, bias = large_values(shape[-1:], dtype), large_values(shape[-1:], dtype) + 1
        for name in ("batch_norm", "layer_norm"):
            forward = getattr(accelerated, name).definition
            backward = getattr(accelerated, f"{name}_grad").definition
            mean, var = (a.astype(dtype) for a in forward(x, weight, bias, eps)[1:])

            def normal(*arrays: HostArray, run: Any = forward) -> Any:
                return in_float64(lambda *wide: run(*wide, eps))(*arrays)

            def slope(*arrays: HostArray, run: Any = backward) -> Any:
                return in_float64(lambda *wide: run(*wide, eps))(*arrays)

            # Not with broadcast inputs: there the statistics would belong to another x.
            yield Case(
                name,
                f"{dtype} {shape}",
                (x, weight, bias),
                normal,
                _kernel(name, eps),
                5 * SLACK,
                pairs=PAIRS[:6],
            )
            yield Case(
                f"{name}_grad",
                f"{dtype} {shape}",
                (grad, x, weight, mean, var),
                slope,
                _kernel(f"{name}_grad", eps),
                20 * SLACK,
                pairs=PAIRS[:6],
            )


def _fused_norm_cases(dtype: DType) -> Iterator[Case]:
    """batch_norm with relu; no normalised value is near relu's kink."""
    eps = 1e-3
    for shape in ((4, 3), (2, 3, 3, 5), (7, 1), (67, 33), (3, 5, 7, 6)):
        x, grad = large_values(shape, dtype) + 5, large_values(shape, dtype)[::-1].copy()
        added = large_values(shape, dtype)[..., ::-1].copy()
        weight, bias = large_values(shape[-1:], dtype), large_values(shape[-1:], dtype) + 1
        mean, var = (a.astype(dtype) for a in accelerated.batch_norm(x, weight, bias, eps)[1:])
        y = accelerated.batch_norm_add_relu(x, weight, bias, added, eps)[0].astype(dtype)
        for name, slack, inputs in (
            ("batch_norm_relu", 5, (x, weight, bias)),
            ("batch_norm_add_relu", 5, (x, weight, bias, added)),
            ("batch_norm_relu_grad", 20, (grad, x, weight, bias, mean, var)),
            ("batch_norm_add_relu_grad", 20, (grad, y, x, weight, mean, var)),
        ):

            def oracle(*arrays: HostArray, name: str = name) -> Any:
                run = getattr(accelerated, name).definition
                return in_float64(lambda *wide: run(*wide, eps))(*arrays)

            call, label = _kernel(name, eps), f"{dtype} {shape}"
            yield Case(name, label, inputs, oracle, call, slack * SLACK, pairs=PAIRS[:6])


def _row_cases(dtype: DType) -> Iterator[Case]:
    random = np.random.default_rng(3)
    for rows, rest in ((1, ()), (4, ()), (5, (3,)), (4, (2, 3)), (0, (2,)), (6, (0,)), (9, (37,))):
        for count in (0, 1, 11) if rows else (0,):
            index = random.integers(0, max(rows, 1), count).astype(np.int64)
            table, source = values((rows, *rest), dtype), large_values((count, *rest), dtype)
            label = f"{dtype} {count} rows of {table.shape}"
            yield Case(
                "gather",
                label,
                (table, index),
                lambda a, i: (a[i],),
                _kernel("gather"),
                pairs=PAIRS,
            )
            for name in ("scatter", "scatter_add"):
                if name == "scatter_add" and dtype == np.bool_:
                    continue
                before = large_values((rows, *rest), dtype)

                def oracle(
                    a: HostArray, i: HostArray, name: Any = name, before: Any = before
                ) -> Any:
                    out = before.copy()
                    getattr(accelerated, name).definition(out, i, a)
                    return (out,)

                yield Case(
                    name,
                    label,
                    (source, index),
                    oracle,
                    _kernel(name),
                    1e-6,
                    pairs=PAIRS,
                    initial=(before,),
                )
    for index in (np.array([2, 0, 2, 1]), np.array([], np.int64)):

        def hot(i: HostArray) -> Any:
            return (accelerated.one_hot.definition(i, 3, dtype),)

        yield Case(
            "one_hot", f"{dtype} {index.tolist()}", (index,), hot, _kernel("one_hot"), pairs=PAIRS
        )


def _extreme_cases(dtype: DType) -> Iterator[Case]:
    if dtype == np.bool_:
        return
    hosts = [values(s, dtype) for s in ((1,), (4,), (2, 3, 4), (2, 1, 3, 1, 2, 1, 2, 2))]
    hosts += [large_values((5, 131), dtype), large_values((131, 5), dtype)]
    for name in ("argmax", "argmin"):
        definition = getattr(accelerated, name).definition
        for host in hosts:
            for axis in range(host.ndim):

                def oracle(a: HostArray, run: Any = definition, axis: int = axis) -> Any:
                    return (run(a, axis, True),)

                label = f"{dtype} {host.shape} axis {axis}"
                yield Case(name, label, (host,), oracle, _kernel(name, axis), pairs=PAIRS)
