"""Test that random networks replay bit for bit, and what is folded into a convolution."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needle
from needle import nn
from tests.nn_devices import needs_kernels

pytestmark = [
    pytest.mark.filterwarnings("error::needle.CaptureWarning"),
    needs_kernels,
]
relu = needle.ops.relu
MINUS_ZERO, ONE = (needle.Tensor(x, dtype="float32", device=needle.cpu()) for x in (-0.0, 1.0))


def conv(bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(4, 4, 3, padding=1, bias=bias, device=needle.cpu())


def norm() -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(4, device=needle.cpu())
    made.weight.cached_data = needle.Tensor([1.5, -0.5, 2.0, 0.7]).cached_data
    made.bias.cached_data = needle.Tensor([0.1, -0.2, 0.3, 0.0]).cached_data
    return made


def image(seed: int) -> needle.Tensor:
    values = np.random.default_rng(seed).standard_normal((2, 4, 5, 5)).astype("float32")
    return needle.Tensor(values, device=needle.cpu())


def run(forward: Callable[[Any], Any], layers: list[nn.Module], capture: bool, *state: Any) -> Any:
    """Return the results and gradients of three steps."""
    parameters = [parameter for layer in layers for parameter in layer.parameters()]

    def step(x: Any) -> Any:
        results = forward(x)
        (results * results).sum().backward()
        return results

    used: Any = needle.capture(step, state=[layers, state]) if capture else step
    found = []
    for seed in range(3):
        x = image(seed)
        arrays = [used(x), x.grad, *(parameter.grad for parameter in parameters)]
        found += [array.numpy() for array in arrays if array is not None]
    return found


def compare(forward: Callable[[Any], Any], layers: list[nn.Module], *state: Any) -> None:
    before = [layer.state_dict() for layer in layers]
    expected = run(forward, layers, False)
    for layer, values in zip(layers, before, strict=True):
        layer.load_state_dict(values)
    for one, other in zip(run(forward, layers, True, *state), expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "change, calls",
    [
        (relu, 1),
        (lambda y: needle.ops.maximum(y, MINUS_ZERO), 2),
        (lambda y: needle.ops.maximum(y, ONE), 2),
        (lambda y: relu(y) + y, 3),
        (lambda y: relu(y + y), 3),
        (lambda y: relu(y[:, :2]), 2),
    ],
    ids=["relu", "negative-zero", "one", "read-twice", "twice-itself", "half"],
)
def test_only_relu_is_folded_with_a_batch_norm(change: Callable[[Any], Any], calls: int) -> None:
    model = nn.Sequential(conv(bias=True), norm()).eval()
    step = needle.capture(lambda x: change(model(x)), state=[model, MINUS_ZERO, ONE], exact=False)
    with needle.no_grad():
        for seed in range(3):
            x = image(seed)
            expected = change(model(x)).numpy()
            np.testing.assert_allclose(step(x).numpy(), expected, rtol=1e-5, atol=1e-5)
    assert len(step.programs[0].recording.calls()) == calls


def test_a_residual_that_is_written_later_stays() -> None:
    """The addition uses a later value of the array, so batch norm must not read it earlier."""
    layers = [conv(), norm()]
    kept = image(7)

    def block(x: Any) -> Any:
        y = layers[1](layers[0](x))
        y.realize_cached_data()
        array = kept.realize_cached_data()
        array[...] = x.realize_cached_data() * 2.0
        return relu(y + kept.detach())

    compare(block, layers, kept)


STEPS: list[Callable[[Any, Any, Any], Any]] = [
    lambda layers, a, b: layers[0](a),
    lambda layers, a, b: layers[1](a),
    lambda layers, a, b: layers[2](b),
    lambda layers, a, b: layers[3](b),
    lambda layers, a, b: relu(a),
    lambda layers, a, b: relu(a + b),
    lambda layers, a, b: a + b * 0.5,
]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=3, max_size=9))
def test_random_networks_keep_their_bits(plan: list[tuple[int, int]]) -> None:
    np.random.seed(0)
    layers: list[nn.Module] = [conv(), norm(), conv(bias=True), norm()]

    def forward(x: Any) -> Any:
        values = [x]
        for kind, which in plan:
            values.append(STEPS[kind](layers, values[-1], values[-1 - which % len(values)]))
        return values[-1]

    compare(forward, layers)
