"""Conformance cases of the optional kernels; the definitions in ``accelerated`` are the oracle.

A definition runs on NumPy arrays, floats in float64. The families of images and of optimiser steps
are in ``optional_images`` and ``optional_steps``. Called by ``run``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ... import accelerated
from ...backends.base import NO_EPILOGUE, Epilogue, EpilogueGrad
from ...dtypes import COMPUTE_DTYPES, DType
from .case import PAIRS, Case, kernel
from .optional_images import image_cases
from .optional_steps import step_cases
from .placement import HostArray
from .values import FLOATS, SHAPES, in_float64, large_values, result_of, values

SLACK = 2e-5
Shapes = tuple[tuple[int, ...], ...]
ROWS: Shapes = ((4,), (3, 5), (2, 3, 4), (1, 1), (0, 3), (5, 131))
EPILOGUES: Shapes = ((7,), (3, 5), (2, 3, 4, 6), (0, 3), (3, 0), (67, 33))
NORMS: Shapes = ((4, 3), (2, 3, 3, 5), (7, 1), (67, 33))
TABLES: Shapes = ((1,), (4,), (5, 3), (4, 2, 3), (0, 2), (6, 0), (9, 37))
relu_grad = accelerated.relu_grad.definition


def optional_cases() -> Iterator[Case]:
    """Yield every case of the optional kernels."""
    for dtype in FLOATS:
        yield from _relu_cases(dtype)
        yield from epilogue_cases(dtype)
        yield from _elementwise_cases(dtype)
        yield from softmax_cases(dtype)
        yield from _random_cases(dtype)
        yield from loss_cases(dtype)
        yield from norm_cases(dtype)
        yield from fused_norm_cases(dtype)
    for dtype in COMPUTE_DTYPES:
        yield from row_cases(dtype)
        yield from extreme_cases(dtype)
    yield from image_cases()
    yield from step_cases()


def _in_place(case: Case, *targets: int) -> Iterator[Case]:
    """Yield the case with its first output in place of each of the inputs ``targets``."""
    for target in targets:
        label = f"{case.label} in place of input {target}"
        yield replace(case, label=label, in_place=True, target=target, pairs=PAIRS[1:6])


def _relu_cases(dtype: DType) -> Iterator[Case]:
    for shape in ((), (7,), (3, 5), (2, 3, 4), (0, 3), (5, 131)):
        y, grad = large_values(shape, dtype), large_values(shape, dtype)[::-1] if shape else None
        grad = np.ones((), dtype) if grad is None else grad.copy()
        oracle, call = in_float64(lambda *given: relu_grad(*given)[0]), kernel("relu_grad", None)
        case = Case("relu_grad", f"{dtype} {shape}", (grad, y), oracle, call, pairs=PAIRS)
        yield from (case, *_in_place(case, 0, 1))
        special = values(shape, dtype)
        yield Case("relu_grad", f"{dtype} {shape} NaN", (grad, special), oracle, call, pairs=PAIRS)


def _elementwise_cases(dtype: DType) -> Iterator[Case]:
    """Yield the cases of ``unary`` for each name that ``accelerated.elementwise`` defines."""
    for name, operation in accelerated.ELEMENTWISE.items():
        call = kernel("unary", name=name)
        oracle = in_float64(operation.definition)
        for shape in SHAPES:
            label = f"{dtype} {shape}"
            yield Case(f"unary.{name}", label, (values(shape, dtype),), oracle, call, SLACK)
        host, label = large_values((3, 67), dtype), f"{dtype} large"
        yield Case(f"unary.{name}", label, (host,), oracle, call, SLACK, pairs=PAIRS)
        tails = np.array([-3.0, -8.0, -20.0, -60.0, -86.0, 1e-6, 20.0], dtype)
        tiny = float(np.finfo(dtype).tiny)
        label = f"{dtype} small results"
        yield Case(f"unary.{name}", label, (tails,), oracle, call, SLACK, absolute=tiny)


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


def epilogue_cases(dtype: DType, shapes: Shapes = EPILOGUES) -> Iterator[Case]:
    """Yield the cases of ``apply_epilogue`` with a bias and relu, and of its gradients."""
    for shape in shapes:
        a, bias = large_values(shape, dtype), large_values(shape[-1:], dtype)[::-1].copy()
        y, grad = bias_relu(a, bias), large_values(shape, dtype)[::-1].copy()

        def forward(backend: Any, ins: Any, outs: Any) -> None:
            backend.apply_epilogue(ins[0], outs[0], Epilogue(ins[1], relu=True))

        label = f"{dtype} {shape}"
        oracle = in_float64(bias_relu)
        case = Case("apply_epilogue", label, (a, bias), oracle, forward, SLACK, pairs=PAIRS)
        yield from (case, *_in_place(case, 0))
        oracle = in_float64(lambda grad, y: relu_grad(grad, y, True))
        call = kernel("relu_grad")
        case = Case("relu_grad", f"{label} sums", (grad, y), oracle, call, SLACK, pairs=PAIRS)
        yield from (case, *_in_place(case, 0, 1))


def bias_relu(a: HostArray, bias: HostArray) -> HostArray:
    """Return relu(a + bias) by the definition."""
    result: HostArray = accelerated.apply_epilogue.definition(a, Epilogue(bias, relu=True))
    return result


def softmax_cases(dtype: DType, shapes: Shapes = ROWS) -> Iterator[Case]:
    """Yield the cases of ``softmax``, ``log_softmax`` and ``logsumexp``."""
    ordinary = [large_values(shape, dtype) for shape in shapes]
    special = np.array([[1e4, -1e4, 0], [-np.inf, 0, 1], [np.nan, 0, 1]], dtype)
    for name in ("softmax", "log_softmax"):
        for host in (*ordinary, special):
            for axis in range(host.ndim):
                if name == "log_softmax" and host is special and axis == 0:
                    continue
                oracle = in_float64(partial(getattr(accelerated, name).definition, axis=axis))
                label = f"{dtype} {host.shape} axis {axis}"
                yield Case(name, label, (host,), oracle, kernel(name, axis), SLACK, pairs=PAIRS)
    for host in (*ordinary, special):
        for axes in {(0,), (host.ndim - 1,), tuple(range(host.ndim))}:
            if 0 in (host.shape[axis] for axis in axes):
                continue
            definition = accelerated.logsumexp.definition
            total = in_float64(partial(definition, axes=axes, keepdims=True))
            label = f"{dtype} {host.shape} over {axes}"
            yield Case("logsumexp", label, (host,), total, kernel("logsumexp"), SLACK, pairs=PAIRS)


def loss_cases(dtype: DType, sizes: Shapes = ((1, 1), (3, 4), (0, 3), (17, 131))) -> Iterator[Case]:
    """Yield the cases of ``cross_entropy`` and its gradient for logits of these shapes."""
    for n, classes in sizes:
        logits = large_values((n, classes), dtype) * (100 if classes == 4 else 1)
        labels = np.arange(n, dtype=np.int64) * 7 % classes
        grad = large_values((n,), dtype)
        for smoothing in (0.0, 0.1, 1.0):
            label = f"{dtype} {(n, classes)} smoothing {smoothing}"
            for name, inputs in (
                ("cross_entropy", (logits, labels)),
                ("cross_entropy_grad", (grad, logits, labels)),
            ):
                definition = getattr(accelerated, name).definition
                oracle = in_float64(partial(definition, smoothing=smoothing))
                call = kernel(name, smoothing)
                yield Case(name, label, inputs, oracle, call, SLACK, pairs=PAIRS)


def norm_cases(dtype: DType, shapes: Shapes = NORMS) -> Iterator[Case]:
    """Yield the cases of ``batch_norm``, ``layer_norm`` and their gradients."""
    eps = 1e-3
    for shape in shapes:
        x, grad = large_values(shape, dtype) + 5, large_values(shape, dtype)[::-1].copy()
        weight, bias = large_values(shape[-1:], dtype), large_values(shape[-1:], dtype) + 1
        for name in ("batch_norm", "layer_norm"):
            forward = getattr(accelerated, name).definition
            backward = getattr(accelerated, f"{name}_grad").definition
            mean, var = (a.astype(dtype) for a in forward(x, weight, bias, eps)[1:])

            def slope(*arrays: HostArray, run: Any = backward) -> Any:
                return run(*arrays, eps)[:3]

            plain = name == "batch_norm"
            forward_call = kernel(name, eps, *([NO_EPILOGUE] if plain else []))
            backward_call = kernel(f"{name}_grad", eps, *([EpilogueGrad()] if plain else []))
            # Inputs are not broadcast, because that would change x but not its statistics.
            case = Case(
                name,
                f"{dtype} {shape}",
                (x, weight, bias),
                in_float64(partial(forward, eps=eps)),
                forward_call,
                5 * SLACK,
                pairs=PAIRS[:6],
            )
            yield from (case, *_in_place(case, *[0][:plain]))
            case = Case(
                f"{name}_grad",
                f"{dtype} {shape}",
                (grad, x, weight, mean, var),
                in_float64(slope),
                backward_call,
                20 * SLACK,
                pairs=PAIRS[:6],
            )
            yield from (case, *_in_place(case, *[0, 1][: 2 * plain]))


def fused_norm_cases(dtype: DType, shapes: Shapes = (*NORMS, (3, 5, 7, 6))) -> Iterator[Case]:
    """Yield cases of batch_norm with relu, and with a residual and relu.

    No normalised value is near the kink of relu.
    """
    eps = 1e-3
    for shape in shapes:
        x, grad = large_values(shape, dtype) + 5, large_values(shape, dtype)[::-1].copy()
        residual = large_values(shape, dtype)[..., ::-1].copy()
        weight, bias = large_values(shape[-1:], dtype), large_values(shape[-1:], dtype) + 1
        norm, slope = accelerated.batch_norm.definition, accelerated.batch_norm_grad.definition
        y, mean, var = (
            a.astype(dtype) for a in norm(x, weight, bias, eps, Epilogue(None, residual, True))
        )

        def forward(
            x: HostArray, weight: HostArray, bias: HostArray, *residual: HostArray, run: Any = norm
        ) -> Any:
            epilogue = Epilogue(None, residual[0] if residual else None, True)
            return run(x, weight, bias, eps, epilogue)

        def behind_relu(*given: HostArray, run: Any = slope) -> Any:
            return run(*given[:5], eps, given[5])[:3]

        def behind_residual(*given: HostArray, run: Any = slope) -> Any:
            return run(*given[:5], eps, None, given[5])

        def call_relu(backend: Any, ins: Any, outs: Any) -> None:
            backend.batch_norm_grad(*ins[:5], *outs, eps, EpilogueGrad(ins[5]))

        def call_residual(backend: Any, ins: Any, outs: Any) -> None:
            backend.batch_norm_grad(*ins[:5], *outs[:3], eps, EpilogueGrad(None, ins[5], outs[3]))

        def call_forward(backend: Any, ins: Any, outs: Any) -> None:
            residual = ins[3] if len(ins) > 3 else None
            backend.batch_norm(*ins[:3], *outs, eps, Epilogue(None, residual, True))

        inputs, slopes = (x, weight, bias), (grad, x, weight, mean, var)
        for name, what, given, oracle, call, slack in (
            ("batch_norm", "relu", inputs, forward, call_forward, 5),
            ("batch_norm", "residual", (*inputs, residual), forward, call_forward, 5),
            ("batch_norm_grad", "relu", (*slopes, bias), behind_relu, call_relu, 20),
            ("batch_norm_grad", "residual", (*slopes, y), behind_residual, call_residual, 20),
        ):
            label = f"{dtype} {shape} {what}"
            expected = in_float64(oracle)
            case = Case(name, label, given, expected, call, slack * SLACK, pairs=PAIRS[:6])
            yield from (case, *_in_place(case, *((0, 1) if name == "batch_norm_grad" else (0,))))


def row_cases(dtype: DType, tables: Shapes = TABLES) -> Iterator[Case]:
    """Yield the cases of ``gather``, ``scatter``, ``scatter_add`` and ``one_hot``."""
    random = np.random.default_rng(3)
    for rows, *rest in tables:
        for count in (0, 1, 11) if rows else (0,):
            index = random.integers(0, max(rows, 1), count).astype(np.int64)
            table, source = values((rows, *rest), dtype), large_values((count, *rest), dtype)
            label = f"{dtype} {count} rows of {table.shape}"
            yield Case(
                "gather",
                label,
                (table, index),
                lambda a, i: (a[i],),
                kernel("gather"),
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
                    kernel(name),
                    1e-6,
                    pairs=PAIRS,
                    initial=(before,),
                )
    for index in (np.array([2, 0, 2, 1]), np.array([], np.int64)):
        hot = result_of(partial(accelerated.one_hot.definition, num_classes=3, dtype=dtype))
        yield Case(
            "one_hot", f"{dtype} {index.tolist()}", (index,), hot, kernel("one_hot"), pairs=PAIRS
        )


def extreme_cases(dtype: DType, large: Shapes = ((5, 131), (131, 5))) -> Iterator[Case]:
    """Yield the cases of ``argmax`` and ``argmin``."""
    if dtype == np.bool_:
        return
    hosts = [values(s, dtype) for s in ((1,), (4,), (2, 3, 4), (2, 1, 3, 1, 2, 1, 2, 2))]
    hosts += [large_values(shape, dtype) for shape in large]
    for name in ("argmax", "argmin"):
        definition = getattr(accelerated, name).definition
        for host in hosts:
            for axis in range(host.ndim):
                oracle = result_of(partial(definition, axis=axis, keepdims=True))
                label = f"{dtype} {host.shape} axis {axis}"
                yield Case(name, label, (host,), oracle, kernel(name, axis), pairs=PAIRS)
