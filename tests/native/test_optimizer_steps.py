"""sgd_step and adam_step against the formulas of backends/base.py in NumPy float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_views import FLOATS, empty_view, numpy_of, view_of
from layout_runs import close

SHAPES = [(3, 4), (1,), (0,), (40000,), (7, 1, 5)]


def arrays(dtype: str, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]


def views(values: list[np.ndarray]) -> list[Any]:
    return [view_of(a) for a in values]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    "momentum, dampening, decay, nesterov",
    [(None, 0, 0, False), (None, 0, 0.1, False), (0.9, 0, 0, False), (0.9, 0.2, 0.1, False),
     (0.9, 0, 0.1, True)],
)  # fmt: skip
def test_sgd(
    kernels: Any,
    momentum: float | None,
    dampening: float,
    decay: float,
    nesterov: bool,
    in_place: bool,
    dtype: str,
) -> None:
    params, grads = arrays(dtype, 0), arrays(dtype, 1)
    velocities = arrays(dtype, 2) if momentum is not None else []
    p_views, v_views = views(params), views(velocities)
    outs = p_views if in_place else [empty_view(s, np.dtype(dtype)) for s in SHAPES]
    settings = (0.3, momentum or 0.0, dampening, decay, nesterov)
    kernels.sgd_step(p_views, views(grads), v_views, outs, *settings)
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        step = g + decay * p.astype(np.float64)
        if momentum is not None:
            velocity = momentum * velocities[i] + (1 - dampening) * step
            close(numpy_of(v_views[i]), velocity, 1e-6)
            step = step + momentum * velocity if nesterov else velocity
        close(numpy_of(outs[i]), p - 0.3 * step, 1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("decay, decoupled", [(0, False), (0.1, False), (0.1, True)])
def test_adam(
    kernels: Any, decay: float, decoupled: bool, step: int, in_place: bool, dtype: str
) -> None:
    params, grads, firsts = arrays(dtype, 0), arrays(dtype, 1), arrays(dtype, 2)
    seconds = [np.abs(a) for a in arrays(dtype, 3)]
    p_views, states = views(params), (views(firsts), views(seconds))
    outs = p_views if in_place else [empty_view(s, np.dtype(dtype)) for s in SHAPES]
    settings = (0.1, 0.9, 0.99, 1e-8, decay, decoupled, step)
    kernels.adam_step(p_views, views(grads), *states, outs, *settings)
    for i, (p, g, m, v) in enumerate(zip(params, grads, firsts, seconds, strict=True)):
        p64, g64 = p.astype(np.float64), g.astype(np.float64)
        if decoupled:
            p64 *= 1 - 0.1 * decay
        else:
            g64 += decay * p64
        first, second = 0.9 * m + 0.1 * g64, 0.99 * v + 0.01 * g64**2
        close(numpy_of(states[0][i]), first, 1e-6)
        close(numpy_of(states[1][i]), second, 1e-6)
        spread = np.sqrt(second / (1 - 0.99**step)) + 1e-8
        close(numpy_of(outs[i]), p64 - 0.1 * first / (1 - 0.9**step) / spread, 2e-6)


def test_no_parameters_at_all(kernels: Any) -> None:
    kernels.sgd_step([], [], [], [], 0.1, 0.0, 0.0, 0.0, False)
    kernels.adam_step([], [], [], [], [], 0.1, 0.9, 0.99, 1e-8, 0.0, False, 1)
