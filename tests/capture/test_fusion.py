"""The pass "fusion": the calls that it merges, those that it keeps, and unchanged bits."""

from collections import Counter
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


def conv(channels: int = 4, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(channels, 4, 3, padding=1, bias=bias, device=needle.cpu())


def norm() -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(4, device=needle.cpu())
    made.weight.cached_data = needle.Tensor([1.5, -0.5, 2.0, 0.7]).cached_data
    made.bias.cached_data = needle.Tensor([0.1, -0.2, 0.3, 0.0]).cached_data
    return made


def image(seed: int) -> needle.Tensor:
    values = np.random.default_rng(seed).standard_normal((2, 4, 5, 5)).astype("float32")
    return needle.Tensor(values, device=needle.cpu())


def run(forward: Callable[[Any], Any], layers: list[nn.Module], capture: bool, *state: Any) -> Any:
    """Return the calls of a recording, and the results and gradients of three steps."""
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
    calls = used.programs[0].recording.calls() if capture else []
    return Counter(call.name for call in calls), found


def compare(forward: Callable[[Any], Any], layers: list[nn.Module], *state: Any) -> Counter[str]:
    """Return the calls of a recording; assert that its bits are those of the eager step."""
    before = [layer.state_dict() for layer in layers]
    _, expected = run(forward, layers, False)
    for layer, values in zip(layers, before, strict=True):
        layer.load_state_dict(values)
    calls, found = run(forward, layers, True, *state)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    return calls


def test_relu_runs_in_a_convolution() -> None:
    layer = conv(bias=True)
    calls = compare(lambda x: relu(layer(x)), [layer])
    assert calls["conv2d"] == 1 and calls["relu_grad"] == 1
    assert calls["binary"] == 3  # these belong to the loss and its gradient


def test_relu_and_its_gradient_run_in_batch_norm() -> None:
    one, other = conv(), norm()
    calls = compare(lambda x: relu(other(one(x))), [one, other])
    assert calls["relu_grad"] == 0


@pytest.mark.parametrize("turned", [False, True])
def test_the_end_of_a_residual_block_is_one_kernel(turned: bool) -> None:
    layers = [conv(), norm(), conv()]

    def block(x: Any) -> Any:
        x = layers[2](x)
        y = layers[1](layers[0](x))
        return relu(x + y if turned else y + x)

    assert compare(block, layers)["relu_grad"] == 0


def test_of_two_batch_norms_the_later_one_adds() -> None:
    layers = [conv(), norm(), conv(), norm()]

    def block(x: Any) -> Any:
        shortcut = layers[1](layers[0](x))
        return relu(shortcut + layers[3](layers[2](x)))

    assert compare(block, layers)["relu_grad"] == 0


def test_a_bias_and_relu_are_one_kernel() -> None:
    layer = nn.Linear(5, 4, device=needle.cpu())
    calls = compare(lambda x: relu(layer(x.reshape((40, 5)))), [layer])
    assert calls["apply_epilogue"] == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda y: needle.ops.maximum(y, MINUS_ZERO),
        lambda y: needle.ops.maximum(y, ONE),
        lambda y: relu(y) + y,
        lambda y: relu(y + y),
        lambda y: relu(y.sum(axes=0).broadcast_to(y.shape)),
    ],
    ids=["negative-zero", "one", "read-twice", "twice-itself", "broadcast"],
)
def test_other_calls_stay(change: Callable[[Any], Any]) -> None:
    layers = [conv(), norm()]
    calls = compare(lambda x: change(layers[1](layers[0](x))), layers, MINUS_ZERO, ONE)
    assert calls["batch_norm"] == 1 and calls["relu_grad"] <= 1


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
