"""Conformance cases of pooling and convolution. Called by ``optional``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ... import accelerated
from ...backends.base import Epilogue
from ...dtypes import DType
from ...shapes import Geometry
from .case import PAIRS, Case
from .placement import HostArray
from .values import FLOATS, in_float64, large_values

SLACK = 5e-5
Pairs = tuple[tuple[str, str], ...]

# x (N, H, W, C), kernel, stride, padding
POOLS: tuple[tuple[Any, ...], ...] = (
    ((1, 2, 2, 1), (2, 2), (2, 2), (0, 0)),
    ((2, 5, 6, 3), (3, 2), (2, 1), (1, 1)),
    ((1, 7, 7, 17), (3, 3), (1, 1), (1, 1)),
    ((1, 4, 4, 2), (1, 2), (3, 2), (0, 1)),
    ((0, 4, 4, 2), (2, 2), (2, 2), (0, 0)),
)
# x (N, H, W, C), kernel, output channels, stride, padding, dilation, groups
CONVOLUTIONS: tuple[tuple[Any, ...], ...] = (
    ((1, 3, 3, 1), (1, 1), 1, (1, 1), (0, 0), (1, 1), 1),
    ((1, 4, 4, 2), (3, 3), 3, (1, 1), (1, 1), (1, 1), 1),
    ((2, 7, 6, 4), (3, 2), 6, (2, 1), (1, 2), (1, 2), 2),
    ((2, 5, 5, 3), (3, 3), 3, (1, 2), (2, 0), (2, 1), 3),
    ((1, 9, 8, 17), (5, 5), 19, (4, 2), (2, 2), (1, 1), 1),
    ((1, 6, 6, 2), (2, 2), 4, (3, 3), (0, 0), (1, 1), 1),
    ((0, 4, 4, 2), (3, 3), 3, (1, 1), (1, 1), (1, 1), 1),
    ((2, 12, 12, 16), (3, 3), 32, (1, 1), (1, 1), (1, 1), 1),
)
# Large enough that a backend may choose Winograd's algorithm.
LARGE: tuple[tuple[Any, ...], ...] = (
    ((4, 16, 16, 64), (3, 3), 64, (1, 1), (1, 1), (1, 1), 1),
    ((3, 17, 15, 65), (3, 3), 63, (1, 1), (1, 0), (1, 1), 1),
)


def image_cases() -> Iterator[Case]:
    """Yield every case of the pooling and convolution kernels and their gradients."""
    for dtype in FLOATS:
        for shape, *windows in POOLS:
            yield from pool_cases(dtype, shape, tuple(windows))
        yield from _special_pool_cases(dtype)
        for convolutions, scale, pairs in ((CONVOLUTIONS, 1.0, PAIRS), (LARGE, 0.1, PAIRS[:1])):
            for shape, kernel, channels, *settings in convolutions:
                weight_shape = (*kernel, shape[3] // settings[3], channels)
                geometry = Geometry(*settings)
                yield from convolution_cases(dtype, shape, weight_shape, geometry, scale, pairs)


def _case(
    name: str,
    label: str,
    inputs: tuple[HostArray, ...],
    settings: tuple[Any, ...],
    *shape: Any,
    pairs: Pairs = PAIRS,
) -> Case:
    """Return the case for a kernel whose definition takes a ``shape`` before the settings."""
    definition = getattr(accelerated, name).definition
    oracle = in_float64(lambda *arrays: definition(*arrays, *shape, *settings))
    return Case(name, label, inputs, oracle, settings, SLACK, pairs)


def pool_cases(dtype: DType, shape: Any, windows: tuple[Any, ...]) -> Iterator[Case]:
    """Yield the cases of max and average pooling; ``windows``: kernel, stride, padding."""
    x = large_values(shape, dtype)
    grad = large_values(accelerated.avg_pool2d.definition(x, *windows).shape, dtype)
    label = f"{dtype} {shape} kernel, stride, padding {windows}"
    yield _case("max_pool2d", label, (x,), windows)
    yield _case("avg_pool2d", label, (x,), windows)
    yield _case("max_pool2d_grad", label, (grad, x), windows)
    yield _case("avg_pool2d_grad", label, (grad,), windows, shape)


def _special_pool_cases(dtype: DType) -> Iterator[Case]:
    windows = ((2, 2), (1, 1), (1, 1))
    for label, value in (("NaN wins", np.nan), ("padding never wins", -np.inf), ("ties", 1.0)):
        x = np.full((1, 3, 3, 2), value, dtype)
        x[0, 1, 1, 0] = 0.5
        grad = large_values((1, 4, 4, 2), dtype)
        yield _case("max_pool2d", f"{dtype} {label}", (x,), windows)
        yield _case("max_pool2d_grad", f"{dtype} {label}", (grad, x), windows)


def convolution_cases(
    dtype: DType,
    shape: Any,
    weight_shape: Any,
    geometry: Geometry,
    scale: float = 1.0,
    pairs: Pairs = PAIRS,
) -> Iterator[Case]:
    """Yield cases; ``scale`` keeps long sums near 1, as the tolerance assumes."""
    x, weight = (large_values(s, dtype) * dtype.type(scale) for s in (shape, weight_shape))
    out_shape = accelerated.conv2d.definition(x, weight, geometry).shape
    grad = large_values(out_shape, dtype) * dtype.type(scale)
    bias = large_values(weight_shape[3:], dtype)
    label = f"{dtype} {shape} * {weight_shape} stride, padding, dilation, groups {tuple(geometry)}"
    for relu in (False, True):
        yield _epilogue_case(label, (x, weight), geometry, relu, pairs)
        yield _epilogue_case(f"{label} + bias", (x, weight, bias), geometry, relu, pairs)
    yield _case("conv2d_input_grad", label, (grad, weight), (geometry,), shape, pairs=pairs)
    yield _case("conv2d_weight_grad", label, (grad, x), (geometry,), weight_shape, pairs=pairs)


def _epilogue_case(
    label: str, inputs: tuple[HostArray, ...], geometry: Geometry, relu: bool, pairs: Pairs
) -> Case:
    """Return conv2d of x, weight and an optional bias."""

    def epilogue(bias: Any = None) -> Epilogue:
        return Epilogue(bias, relu=relu)

    def oracle(x: HostArray, weight: HostArray, *bias: HostArray) -> Any:
        return accelerated.conv2d.definition(x, weight, geometry, epilogue(*bias))

    def call(backend: Any, ins: Any, outs: Any) -> None:
        backend.conv2d(*ins[:2], outs[0], geometry, epilogue(*ins[2:]))

    label += " then relu" * relu
    return Case("conv2d", label, inputs, in_float64(oracle), (), SLACK, pairs, call=call)
