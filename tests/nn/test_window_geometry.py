"""Compare convolutions and pools of any geometry with their definitions; gradients are adjoints."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import needle as ndl
from needle import ops
from tests import nn_oracles

SETTINGS = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def convolutions(draw: Any) -> tuple[Any, ...]:
    """Return (x shape, weight shape, options) that fit each other."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kernel, dilation = draw(pairs), draw(pairs)
    padding = draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    size = tuple(
        draw(st.integers(max(1, d * (k - 1) + 1 - 2 * p), 9))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    inputs, outputs = draw(st.integers(1, 3)), groups * draw(st.integers(1, 3))
    x = (draw(st.integers(1, 3)), groups * inputs, *size)
    options = {"stride": draw(pairs), "padding": padding, "dilation": dilation, "groups": groups}
    return x, (outputs, inputs, *kernel), options


# The kernel's first column meets only padding; the last one sees padding on the right.
RIGHT_PADDING = {"stride": (1, 2), "padding": (0, 3), "dilation": (1, 3), "groups": 1}


@SETTINGS
@given(case=convolutions())
@example(case=((1, 1, 2, 4), (1, 1, 1, 3), RIGHT_PADDING))
def test_convolution(case: Any, device: Any) -> None:
    x_shape, w_shape, options = case
    random = np.random.default_rng(0)
    x, w = random.standard_normal(x_shape), random.standard_normal(w_shape)
    expected = nn_oracles.conv2d(x, w, **options)
    g = random.standard_normal(expected.shape)
    tx, tw, tg = (ndl.Tensor(v, device=device, dtype="float64") for v in (x, w, g))
    np.testing.assert_allclose(
        ops.conv2d(tx, tw, **options).numpy(), expected, rtol=1e-10, atol=1e-12
    )
    inner = (expected * g).sum()  # adjoints: <A x, g> = <x, A' g>, in x and in w
    x_grad = ops.conv2d_input_grad(tg, tw, x_shape, **options).numpy()
    w_grad = ops.conv2d_weight_grad(tg, tx, w_shape, **options).numpy()
    assert (x_grad * x).sum() == pytest.approx(inner, rel=1e-9, abs=1e-9)
    assert (w_grad * w).sum() == pytest.approx(inner, rel=1e-9, abs=1e-9)


@st.composite
def windows(draw: Any) -> tuple[Any, ...]:
    """Draw an x shape, kernel, stride and padding that fit together."""
    kernel = draw(pairs)
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    size = tuple(draw(st.integers(k, 8)) for k in kernel)
    return (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *size), kernel, draw(pairs), padding


@SETTINGS
@given(case=windows())
def test_pooling(case: Any, device: Any) -> None:
    shape, *geometry = case
    random = np.random.default_rng(0)
    x = random.permutation(np.arange(float(np.prod(shape)))).reshape(shape)
    for pool, oracle in [
        (ops.max_pool2d, nn_oracles.max_pool),
        (ops.avg_pool2d, nn_oracles.avg_pool),
    ]:
        expected = oracle(x, *geometry)
        g = random.standard_normal(expected.shape)
        a = ndl.Tensor(x, device=device, dtype="float64")
        y = pool(a, *geometry)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12)
        y.backward(ndl.Tensor(g, device=device, dtype="float64"))
        # both are homogeneous: <f(x), g> = <x, f'(x)* g>
        assert (a.grad.numpy() * x).sum() == pytest.approx((expected * g).sum(), rel=1e-9, abs=1e-7)


@SETTINGS
@given(
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    out=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
def test_adaptive_pooling(size: Any, out: Any, device: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 2, *size))
    y = ops.adaptive_avg_pool2d(ndl.Tensor(x, device=device, dtype="float64"), out)
    np.testing.assert_allclose(y.numpy(), nn_oracles.adaptive(x, *out), rtol=1e-10, atol=1e-12)
