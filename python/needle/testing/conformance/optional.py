"""Conformance cases of the optional kernels; the definitions in ``accelerated`` are the oracle.

A definition runs on NumPy arrays, with floats as float64. The families of images and of optimiser
steps are in ``optional_images`` and ``optional_steps``. Called by ``run``.
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
from .case import PAIRS, Case
from .optional_images import image_cases
from .optional_steps import step_cases
from .placement import HostArray
from .values import FLOATS, SHAPES, in_float64, large_values, reversed_values, values

SLACK = 2e-5
Shapes = tuple[tuple[int, ...], ...]
ROWS: Shapes = ((4,), (3, 5), (2, 3, 4), (1, 1), (0, 3), (5, 131))
EPILOGUES: Shapes = ((7,), (3, 5), (2, 3, 4, 6), (0, 3), (3, 0), (67, 33))
NORMS: Shapes = ((4, 3), (2, 3, 3, 5), (7, 1), (67, 33))
TABLES: Shapes = ((1,), (4,), (5, 3), (4, 2, 3), (0, 2), (6, 0), (9, 37))


def optional_cases() -> Iterator[Case]:
    """Yield every case of the optional kernels."""
    for dtype in FLOATS:
        for cases in (_relu_cases, epilogue_cases, _elementwise_cases, softmax_cases):
            yield from cases(dtype)
        for cases in (_random_cases, loss_cases, norm_cases, fused_norm_cases):
            yield from cases(dtype)
    for dtype in COMPUTE_DTYPES:
        yield from row_cases(dtype)
        yield from extreme_cases(dtype)
    yield from image_cases()
    yield from step_cases()


def _in_place(case: Case, *targets: int) -> Iterator[Case]:
    """Yield the case, and once for each input in ``targets`` with the first output in its place."""
    for target in targets:
        label = f"{case.label} in place of input {target}"
        yield replace(case, label=label, in_place=True, target=target, pairs=PAIRS[1:6])


def _relu_cases(dtype: DType) -> Iterator[Case]:
    for shape in ((), (7,), (3, 5), (2, 3, 4), (0, 3), (5, 131)):
        inputs = reversed_values(shape, dtype), large_values(shape, dtype)
        oracle = in_float64(lambda *given: accelerated.relu_grad.definition(*given)[0])
        case = Case("relu_grad", f"{dtype} {shape}", inputs, oracle, (None,), pairs=PAIRS)
        yield from (case, *_in_place(case, 0, 1))
        yield replace(case, label=f"{case.label} NaN", inputs=(inputs[0], values(shape, dtype)))


def _elementwise_cases(dtype: DType) -> Iterator[Case]:
    """Yield the cases of ``unary`` for each name that ``accelerated.elementwise`` defines."""
    tails = np.array([-3.0, -8.0, -20.0, -60.0, -86.0, 1e-6, 20.0], dtype)
    for name, operation in accelerated.ELEMENTWISE.items():
        oracle = in_float64(operation.definition)
        case = partial(Case, f"unary.{name}", oracle=oracle, tolerance=SLACK)
        for shape in SHAPES:
            yield case(f"{dtype} {shape}", (values(shape, dtype),))
        yield case(f"{dtype} large", (large_values((3, 67), dtype),), pairs=PAIRS)
        tiny = float(np.finfo(dtype).tiny)
        yield case(f"{dtype} small results", (tails,), absolute=tiny)


def _random_cases(dtype: DType) -> Iterator[Case]:
    settings = (("uniform", -2.0, 5.0), ("normal", 0.5, 2.0), ("bernoulli", 0.3, 4.0))
    for name, a, b in (*settings, ("bernoulli", 0.0, 1.0), ("bernoulli", 1.0, 1.0)):
        for shape, seed, draw in (((), 0, 0), ((3, 0), 1, 2), ((67, 33), 2**64 - 1, 2**32 - 1)):
            yield _random(np.empty(shape, dtype), name, seed, draw, a, b)


def _random(out: HostArray, name: str, *settings: Any) -> Case:
    def call(backend: Any, ins: Any, outs: Any) -> None:
        backend.random(name, outs[0], *settings)

    def oracle() -> HostArray:
        accelerated.random.definition(out, name, *settings)
        return out

    pairs = tuple(("compact", layout) for _, layout in PAIRS)
    label = f"{name} {out.dtype} {out.shape} seed, draw, parameters {settings}"
    return Case("random", label, (), oracle, pairs=pairs, call=call)


def epilogue_cases(dtype: DType, shapes: Shapes = EPILOGUES) -> Iterator[Case]:
    """Yield the cases of ``apply_epilogue`` with a bias and relu, and of its gradients."""

    def forward(backend: Any, ins: Any, outs: Any) -> None:
        backend.apply_epilogue(ins[0], outs[0], Epilogue(ins[1], relu=True))

    for shape in shapes:
        a, bias = large_values(shape, dtype), reversed_values(shape[-1:], dtype)
        case = partial(Case, label=f"{dtype} {shape}", tolerance=SLACK, pairs=PAIRS)
        made = case("apply_epilogue", inputs=(a, bias), oracle=in_float64(bias_relu), call=forward)
        yield from (made, *_in_place(made, 0))
        inputs = reversed_values(shape, dtype), bias_relu(a, bias)
        oracle = in_float64(partial(accelerated.relu_grad.definition, sums=True))
        made = case("relu_grad", inputs=inputs, oracle=oracle)
        yield from (made, *_in_place(made, 0, 1))


def bias_relu(a: HostArray, bias: HostArray) -> HostArray:
    """Return relu(a + bias) by the definition."""
    result: HostArray = accelerated.apply_epilogue.definition(a, Epilogue(bias, relu=True))
    return result


def _defined(
    name: str, label: str, inputs: tuple[HostArray, ...], settings: tuple[Any, ...], **options: Any
) -> Case:
    """Return a case for a kernel whose definition takes inputs and settings in the same order."""
    definition = getattr(accelerated, name).definition
    oracle = in_float64(lambda *arrays: definition(*arrays, *settings))
    return Case(name, label, inputs, oracle, settings, SLACK, pairs=PAIRS, **options)


def softmax_cases(dtype: DType, shapes: Shapes = ROWS) -> Iterator[Case]:
    """Yield the cases of ``softmax``, ``log_softmax`` and ``logsumexp``."""
    ordinary = [large_values(shape, dtype) for shape in shapes]
    special = np.array([[1e4, -1e4, 0], [-np.inf, 0, 1], [np.nan, 0, 1]], dtype)
    for host in (*ordinary, special):
        for axis in range(host.ndim):
            label = f"{dtype} {host.shape} axis {axis}"
            yield _defined("softmax", label, (host,), (axis,))
            if host is not special or axis:
                yield _defined("log_softmax", label, (host,), (axis,))
        for axes in {(0,), (host.ndim - 1,), tuple(range(host.ndim))}:
            if 0 not in (host.shape[axis] for axis in axes):
                definition = accelerated.logsumexp.definition
                oracle = in_float64(partial(definition, axes=axes, keepdims=True))
                label = f"{dtype} {host.shape} over {axes}"
                yield Case("logsumexp", label, (host,), oracle, tolerance=SLACK, pairs=PAIRS)


def loss_cases(dtype: DType, sizes: Shapes = ((1, 1), (3, 4), (0, 3), (17, 131))) -> Iterator[Case]:
    """Yield the cases of ``cross_entropy`` and its gradient for logits of these shapes."""
    for n, classes in sizes:
        logits = large_values((n, classes), dtype) * (100 if classes == 4 else 1)
        labels = np.arange(n, dtype=np.int64) * 7 % classes
        grad = large_values((n,), dtype)
        for smoothing in (0.0, 0.1, 1.0):
            label = f"{dtype} {(n, classes)} smoothing {smoothing}"
            yield _defined("cross_entropy", label, (logits, labels), (smoothing,))
            yield _defined("cross_entropy_grad", label, (grad, logits, labels), (smoothing,))


EPS = 1e-3
LAYOUTS = PAIRS[:6]
"""Inputs of norms that are not broadcast: broadcasting would change x but not its statistics."""


def norm_cases(dtype: DType, shapes: Shapes = NORMS) -> Iterator[Case]:
    """Yield the cases of ``batch_norm``, ``layer_norm`` and their gradients."""
    for shape in shapes:
        x, weight, bias, grad = _norm_inputs(dtype, shape)
        for name, places, epilogues in (
            ("batch_norm", (0, 1), ((NO_EPILOGUE,), (EpilogueGrad(),))),
            ("layer_norm", (), ((), ())),
        ):
            norm = partial(getattr(accelerated, name).definition, eps=EPS)
            slope = partial(getattr(accelerated, f"{name}_grad").definition, eps=EPS)
            mean, var = (a.astype(dtype) for a in norm(x, weight, bias)[1:])
            for row, inputs, oracle, epilogue, slack, targets in (
                (name, (x, weight, bias), norm, epilogues[0], 5, places[:1]),
                (f"{name}_grad", (grad, x, weight, mean, var), slope, epilogues[1], 20, places),
            ):
                first = in_float64(lambda *arrays, run=oracle: run(*arrays)[:3])
                settings, tolerance = (EPS, *epilogue), slack * SLACK
                case = Case(row, f"{dtype} {shape}", inputs, first, settings, tolerance, LAYOUTS)
                yield from (case, *_in_place(case, *targets))


def _norm_inputs(dtype: DType, shape: tuple[int, ...]) -> tuple[HostArray, ...]:
    """Return x, weight, bias and the gradient of the result."""
    x, weight, bias = (large_values(s, dtype) for s in (shape, shape[-1:], shape[-1:]))
    return x + 5, weight, bias + 1, reversed_values(shape, dtype)


def fused_norm_cases(dtype: DType, shapes: Shapes = (*NORMS, (3, 5, 7, 6))) -> Iterator[Case]:
    """Yield cases of batch_norm with relu, and with a residual and relu.

    No normalised value is near the kink of relu.
    """
    norm: Any = accelerated.batch_norm.definition
    slope: Any = accelerated.batch_norm_grad.definition

    def epilogue(residual: Any = None) -> Epilogue:
        return Epilogue(None, residual, True)

    def forward(*given: HostArray) -> Any:
        return norm(*given[:3], EPS, epilogue(*given[3:]))

    def call_forward(backend: Any, ins: Any, outs: Any) -> None:
        backend.batch_norm(*ins[:3], *outs, EPS, epilogue(*ins[3:]))

    def behind_relu(*given: HostArray) -> Any:
        return slope(*given[:5], EPS, given[5])[:3]

    def call_relu(backend: Any, ins: Any, outs: Any) -> None:
        backend.batch_norm_grad(*ins[:5], *outs, EPS, EpilogueGrad(ins[5]))

    def behind_residual(*given: HostArray) -> Any:
        return slope(*given[:5], EPS, None, given[5])

    def call_residual(backend: Any, ins: Any, outs: Any) -> None:
        backend.batch_norm_grad(*ins[:5], *outs[:3], EPS, EpilogueGrad(None, ins[5], outs[3]))

    for shape in shapes:
        x, weight, bias, grad = _norm_inputs(dtype, shape)
        residual = large_values(shape, dtype)[..., ::-1].copy()
        y, mean, var = (a.astype(dtype) for a in forward(x, weight, bias, residual))
        inputs, slopes = (x, weight, bias), (grad, x, weight, mean, var)
        for name, what, given, oracle, call, slack in (
            ("batch_norm", "relu", inputs, forward, call_forward, 5),
            ("batch_norm", "residual", (*inputs, residual), forward, call_forward, 5),
            ("batch_norm_grad", "relu", (*slopes, bias), behind_relu, call_relu, 20),
            ("batch_norm_grad", "residual", (*slopes, y), behind_residual, call_residual, 20),
        ):
            label, tolerance = f"{dtype} {shape} {what}", slack * SLACK
            case = Case(name, label, given, in_float64(oracle), (), tolerance, LAYOUTS, call=call)
            yield from (case, *_in_place(case, *((0, 1) if name == "batch_norm_grad" else (0,))))


def row_cases(dtype: DType, tables: Shapes = TABLES) -> Iterator[Case]:
    """Yield the cases of ``gather``, ``scatter``, ``scatter_add`` and ``one_hot``."""
    random = np.random.default_rng(3)
    for rows, *rest in tables:
        for count in (0, 1, 11) if rows else (0,):
            index = random.integers(0, max(rows, 1), count).astype(np.int64)
            table, source = values((rows, *rest), dtype), large_values((count, *rest), dtype)
            label = f"{dtype} {count} rows of {table.shape}"
            yield Case("gather", label, (table, index), lambda a, i: a[i], pairs=PAIRS)
            yield _scatter("scatter", label, source, index, rows)
            if dtype != np.bool_:
                yield _scatter("scatter_add", label, source, index, rows)
    for index in (np.array([2, 0, 2, 1]), np.array([], np.int64)):
        hot = partial(accelerated.one_hot.definition, num_classes=3, dtype=dtype)
        yield Case("one_hot", f"{dtype} {index.tolist()}", (index,), hot, pairs=PAIRS)


def _scatter(name: str, label: str, source: HostArray, index: HostArray, rows: int) -> Case:
    def oracle(a: HostArray, i: HostArray) -> HostArray:
        out = before.copy()
        getattr(accelerated, name).definition(out, i, a)
        return out

    before = large_values((rows, *source.shape[1:]), source.dtype)
    inputs, initial = (source, index), (before,)
    return Case(name, label, inputs, oracle, tolerance=1e-6, pairs=PAIRS, initial=initial)


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
                oracle = partial(definition, axis=axis, keepdims=True)
                label = f"{dtype} {host.shape} axis {axis}"
                yield Case(name, label, (host,), oracle, (axis,), pairs=PAIRS)
