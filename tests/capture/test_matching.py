"""Test which calls must not replay a recording, and which must not break the next call."""

import copy
import threading
import time
import types
import warnings
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn, optim
from needle.errors import ShapeError
from tests.nn_devices import needs_kernels

pytestmark = [needs_kernels, pytest.mark.filterwarnings("error::needle.CaptureWarning")]


def tensor(values: Any) -> needle.Tensor:
    return needle.Tensor(values, device=needle.cpu(), requires_grad=False)


class Divisor:
    """An attribute that a step reads; ``dtype`` makes it look like an array."""

    dtype = "float32"

    def __init__(self, value: float) -> None:
        self.value = value


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
def test_a_recording_of_zero_does_not_fit_negative_zero(kind: Any) -> None:
    as_argument = needle.capture(lambda x, divisor: x / divisor)
    held = Divisor(kind(0.0))
    as_attribute = needle.capture(lambda x: x / held.value, state=held)
    x = tensor([1.0, 2.0])
    for _ in range(2):
        for zero, expected in ((0.0, np.inf), (-0.0, -np.inf)):
            held.value = kind(zero)
            assert as_argument(x, kind(zero)).numpy().tolist() == [expected] * 2
            assert as_attribute(x).numpy().tolist() == [expected] * 2
    assert as_argument.recordings == as_attribute.recordings == 2


def test_one_nan_fits_another() -> None:
    step = needle.capture(lambda x, factor: x * factor)
    for _ in range(4):
        assert np.isnan(step(tensor([1.0]), float("nan")).numpy()).all()
    assert (step.recordings, step.replays) == (1, 3)


def test_an_object_is_not_taken_for_a_later_one_with_its_id() -> None:
    step = needle.capture(lambda x, divisor: x / divisor.value)
    x = tensor([8.0])
    found = [step(x, Divisor(float(value))).numpy().item() for value in range(1, 8)]
    np.testing.assert_array_equal(found, np.float32(8.0) / np.arange(1, 8, dtype="float32"))


def test_the_gradient_of_an_unused_parameter_is_reset() -> None:
    """The reset changed nothing while the step was recorded, but a replay must repeat it."""

    def weights(captured: bool) -> list[Any]:
        np.random.seed(0)
        used, unused = (nn.Linear(3, 2, device=needle.cpu()) for _ in range(2))
        optimizer = optim.SGD([*used.parameters(), *unused.parameters()], lr=0.1)

        def train(x: Any) -> None:
            optimizer.reset_grad()
            (used(x) ** 2).mean().backward()
            optimizer.step()

        state = [used, unused, optimizer]
        step: Any = needle.capture(train, state=state) if captured else train
        for number in range(5):
            step(tensor(np.random.randn(4, 3)))
            if number == 2:
                unused.weight.grad = needle.ones(*unused.weight.shape, device=needle.cpu())
        return [p.numpy() for p in optimizer.params]

    for eager, replayed in zip(weights(False), weights(True), strict=True):
        np.testing.assert_array_equal(replayed, eager)


def test_a_step_that_reads_a_gradient_notices_that_it_appears() -> None:
    weight = nn.Parameter(needle.ones(2, device=needle.cpu()))
    step = needle.capture(
        lambda x: x + weight if weight.grad is None else x * weight.grad, state=weight
    )
    for gradient in (None, 3.0, 5.0, None, 7.0):
        weight.grad = None if gradient is None else tensor([gradient] * 2)
        expected = [2.0 if gradient is None else gradient] * 2
        assert step(tensor([1.0, 1.0])).numpy().tolist() == expected
    assert step.replays == 3


def test_gradients_that_a_step_adds_itself() -> None:
    """The step reads the gradient that the previous call assigned, and then assigns a new one."""

    def gradients(captured: bool) -> list[Any]:
        np.random.seed(0)
        layer = nn.Linear(3, 2, device=needle.cpu())

        def add(x: Any) -> None:
            before = layer.weight.grad
            (layer(x) ** 2).mean().backward()
            if before is not None:
                layer.weight.grad = layer.weight.grad + before

        step: Any = needle.capture(add, state=layer) if captured else add
        found = []
        for number in range(7):
            step(tensor(np.random.randn(4, 3)))
            found.append(layer.weight.grad.numpy())
            if number == 3:
                layer.weight.grad = None
        return found

    eager = gradients(False)
    with pytest.warns(needle.CaptureWarning, match=r"Linear\.weight\.grad differs"):
        np.testing.assert_array_equal(gradients(True), eager)


def test_a_gradient_that_is_assigned_before_it_is_read_needs_one_recording() -> None:
    layer = nn.Linear(3, 2, device=needle.cpu())

    def train(x: Any) -> Any:
        (layer(x) ** 2).mean().backward()
        return layer.weight.grad * 2

    step = needle.capture(train, state=layer)
    for _ in range(3):
        step(tensor(np.random.randn(4, 3)))
    assert (step.recordings, step.replays) == (1, 2)


def test_calls_that_raise_are_no_recordings() -> None:
    layer = nn.Linear(3, 2, device=needle.cpu())
    step = needle.capture(layer)
    for size in range(10, 30):
        with pytest.raises(ShapeError):
            step(tensor(np.ones((2, size))))
    x = tensor(np.random.randn(2, 3))
    for _ in range(3):
        np.testing.assert_array_equal(step(x).numpy(), layer(x).numpy())
    assert (step.recordings, step.replays) == (1, 2)


def test_threads_that_begin_together_share_a_recording() -> None:
    layer = nn.Linear(3, 2, device=needle.cpu())
    x = tensor(np.random.randn(2, 3))
    expected, found = layer(x).numpy(), []
    start = threading.Barrier(12)

    def slow(x: Any) -> Any:
        time.sleep(0.01)
        return layer(x)

    step = needle.capture(slow, state=layer)

    def call() -> None:
        start.wait()
        found.extend(step(x).numpy() for _ in range(5))

    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(12) as threads:
        warnings.simplefilter("always")
        for _ in range(12):
            threads.submit(call)
    assert len(found) == 60 and not caught
    np.testing.assert_array_equal(found, [expected] * 60)
    assert step.recordings == 1


class Scaled(nn.Module):
    slope = 1.0
    factor = Fraction(1)
    powers = (1.0, 2.0)

    def __init__(self) -> None:
        super().__init__()
        self.table = np.ones(2)

    def scale(self) -> float:
        return self.slope * float(self.factor) * self.powers[0] * float(self.table[0])

    def forward(self, x: Any) -> Any:
        return x * self.scale()


CHANGES: dict[str, Callable[[Scaled], None]] = {
    "an attribute of the object": lambda layer: setattr(layer, "slope", 5.0),
    "an attribute of the class": lambda layer: setattr(Scaled, "slope", 5.0),
    "an object of the class": lambda layer: setattr(Scaled, "factor", Fraction(5)),
    "a tuple of the class": lambda layer: setattr(Scaled, "powers", (5.0, 2.0)),
    "a method of the class": lambda layer: setattr(Scaled, "scale", lambda self: 5.0),
    "forward": lambda layer: setattr(Scaled, "forward", lambda self, x: x * 5.0),
    "an element of an array": lambda layer: layer.table.__setitem__(0, 5.0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_class_or_array_is_recorded_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attribute in ("slope", "factor", "powers", "scale", "forward"):  # then restored
        monkeypatch.setattr(Scaled, attribute, vars(Scaled)[attribute])
    layer = Scaled()
    step = needle.capture(layer)
    assert [step(tensor([1.0])).item() for _ in range(4)] == [1.0] * 4
    CHANGES[name](layer)
    assert [step(tensor([1.0])).item() for _ in range(3)] == [5.0] * 3
    assert (step.recordings, step.replays) == (2, 5)


@pytest.mark.parametrize(
    "kept, change",
    [
        (deque([1.0]), lambda kept: kept.__setitem__(0, 5.0)),
        ({1.0}, lambda kept: (kept.clear(), kept.add(5.0))),
        (Counter([1.0]), lambda kept: (kept.clear(), kept.update([5.0]))),
    ],
    ids=["deque", "set", "counter"],
)
def test_a_changed_entry_is_recorded_again_and_a_check_changes_none(
    kept: Any, change: Callable[[Any], Any]
) -> None:
    step = needle.capture(lambda x: x * next(iter(kept)), state=[kept])
    before = copy.copy(kept)
    assert [step(tensor([1.0])).item() for _ in range(4)] == [1.0] * 4
    assert kept == before
    change(kept)
    assert step(tensor([1.0])).item() == 5.0


def add_to_state(kept: dict[str, Any], x: Any) -> Any:
    kept["sum"] = x if kept["sum"] is None else kept["sum"] + x
    return kept["sum"] * 1.0


def add_to_one_of_two(kept: dict[str, Any], x: Any) -> Any:
    kept["one"] = kept["one"] + x
    return kept["one"] + kept["other"]


@pytest.mark.parametrize("step", [add_to_state, add_to_one_of_two])
def test_a_state_that_a_step_replaces_is_guarded(step: Any) -> None:
    def results(check: bool | None) -> list[float]:
        shared = tensor([0.0])
        kept = {"sum": None, "one": shared, "other": shared}

        def call(x: Any) -> Any:
            return step(kept, x)

        captured = call if check is None else needle.capture(call, state=[kept], check=check)
        return [captured(tensor([float(i)])).item() for i in range(6)]

    assert results(check=False) == results(check=True) == results(check=None)


def test_a_shape_that_only_python_reads_is_guarded() -> None:
    """No kernel reads the tensors, so no binding compares their layouts."""
    kept = types.SimpleNamespace(constant=tensor([1.0]), weight=nn.Parameter(tensor([1.0])))

    def step(x: Any) -> Any:
        return x * float(kept.constant.shape[0]) * float(kept.weight.shape[0])

    captured = needle.capture(step, state=[kept], check=False)
    for replace in (False, True):
        for constant, weight in ((1, 1), (3, 1), (3, 2), (1, 1), (1, 1)):
            kept.weight.data = tensor(np.ones(weight))
            if replace:
                kept.constant = tensor(np.ones(constant))
            else:
                kept.constant.data = tensor(np.ones(constant))
            assert captured(tensor([1.0])).item() == constant * weight
    assert captured.replays >= 3


@pytest.mark.parametrize("place", ["state", "argument"])
def test_hooks_are_guarded(place: str) -> None:
    weight = nn.Parameter(tensor([1.0]))

    def train(x: Any, weight: Any) -> Any:
        weight.grad = None
        (x * weight).sum().backward()
        return weight.grad * 1.0

    captured = needle.capture(train, state=weight, check=False)
    step = (
        captured
        if place == "argument"
        else needle.capture(lambda x: train(x, weight), state=weight, check=False)
    )

    def gradients() -> list[float]:
        given = (weight,) if place == "argument" else ()
        return [step(tensor([2.0]), *given).item() for _ in range(3)]

    assert gradients() == [2.0] * 3
    handle = weight.register_hook(lambda grad: grad * 5.0)
    assert gradients() == [10.0] * 3
    handle.remove()
    weight.register_hook(lambda grad: grad * 7.0)
    assert gradients() == [14.0] * 3
    assert (step.recordings, step.replays) == (3, 6)
