"""Test that steps that cannot be replayed run eagerly, and warn once with the reason."""

import os
import subprocess
import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn, optim
from tests.nn_devices import needs_kernels

pytestmark = needs_kernels


def ones(*shape: int) -> needle.Tensor:
    return needle.ones(*shape, device=needle.cpu())


def reasons(step: Any, *calls: Any) -> tuple[list[Any], list[str]]:
    """Return the result of ``step`` for each call, and the capture warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [step(*args) for args in calls]
    return results, [str(w.message) for w in caught if w.category is needle.CaptureWarning]


def test_control_flow_on_values_runs_eagerly_and_warns_once() -> None:
    @needle.capture
    def step(x: Any) -> Any:
        return x * 2.0 if x.sum().item() > 0 else x * 3.0

    results, messages = reasons(step, (ones(2),), (-ones(2),), (ones(2),))
    assert [r.numpy()[0] for r in results] == [2.0, -3.0, 2.0]
    assert len(messages) == 1
    assert "the step reads the values of an array" in messages[0]
    assert "test_eager_calls.py line" in messages[0]
    assert (step.recordings, step.replays) == (0, 0)


def test_recording_stops_when_every_call_passes_another_number() -> None:
    step = needle.capture(lambda x, number: x * number)
    results, messages = reasons(step, *[(ones(1), float(i)) for i in range(30)])
    assert [r.numpy()[0] for r in results] == list(range(30))
    assert step.recordings < 10 and step.replays == 0 and step.programs == []
    assert len(messages) == 1
    assert "no call repeats the arguments of an earlier one; pass numbers as Tensors" in messages[0]


@pytest.mark.parametrize("read", [bool, float, np.asarray, lambda t: t.numpy()])
def test_reading_values_prevents_capture(read: Any) -> None:
    def step(x: Any) -> Any:
        read(x.sum() if read is not np.asarray else x.sum().cached_data)
        return x + 1.0

    results, messages = reasons(needle.capture(step), (ones(1),), (ones(1),))
    assert [r.numpy()[0] for r in results] == [2.0, 2.0]
    assert len(messages) == 1


def test_host_data_must_be_an_argument() -> None:
    noise = iter(range(100))

    def step(x: Any) -> Any:
        return x + needle.Tensor(np.full(2, next(noise)), device=needle.cpu())

    with pytest.raises(needle.CaptureError, match="data of the host.* Python computed or copied"):
        needle.capture(step)(ones(2))


def test_host_random_numbers_prevent_capture() -> None:
    def step(x: Any) -> Any:
        return x * (2.0 if np.random.rand() < 0.5 else 3.0)

    np.random.seed(0)
    expected = [step(ones(1)).numpy()[0] for _ in range(6)]
    np.random.seed(0)
    results, messages = reasons(needle.capture(step), *[(ones(1),)] * 6)
    assert [r.numpy()[0] for r in results] == expected
    assert len(messages) == 1
    assert "random numbers" in messages[0]


def test_a_counter_changed_by_the_step_prevents_capture() -> None:
    layer = nn.Linear(2, 2, device=needle.cpu())
    layer.calls = 0

    def step(x: Any) -> Any:
        layer.calls += 1
        return layer(x) * float(layer.calls)

    captured = needle.capture(step, state=layer)
    x = ones(1, 2)
    results, messages = reasons(captured, *[(x,)] * 3)
    np.testing.assert_allclose(results[2].numpy(), 3 * results[0].numpy(), rtol=1e-6)
    assert layer.calls == 3
    assert len(messages) == 1
    assert "changes Linear.calls from 0 to 1" in messages[0]


def test_a_setting_that_changes_at_every_call_ends_in_eager_calls() -> None:
    settings = {"scale": 0.0}
    step = needle.capture(lambda x: x * settings["scale"], state=settings)

    def call(scale: float) -> Any:
        settings["scale"] = scale
        return step(ones(1))

    results, messages = reasons(call, *[(float(i),) for i in range(12)])
    assert [r.item() for r in results] == [float(i) for i in range(12)]
    assert len(messages) == 1
    assert "state.scale has changed" in messages[0]


def test_results_appended_to_a_list_prevent_capture() -> None:
    kept: list[Any] = []

    def step(x: Any) -> Any:
        y = x * 2.0
        kept.append(y)
        return y

    captured = needle.capture(step, state={"kept": kept})
    _, messages = reasons(captured, (ones(1),), (-ones(1),))
    assert [y.item() for y in kept] == [2.0, -2.0]
    assert len(messages) == 1
    assert "length of state.kept" in messages[0]


@pytest.mark.parametrize("holder", [list, types.SimpleNamespace])
@pytest.mark.parametrize("detached", [False, True])
def test_a_result_that_is_returned_and_kept_outside_of_the_state_stays_current(
    holder: Any, detached: bool
) -> None:
    kept = holder()

    def step(x: Any) -> Any:
        y = x * 2.0
        value = y.detach() if detached else y
        if isinstance(kept, list):
            kept.append(value)
        else:
            kept.last = value
        return {"y": y}

    calls = [(ones(1) * number,) for number in range(6)]
    results, messages = reasons(needle.capture(step), *calls)
    kept_values = kept if isinstance(kept, list) else [kept.last]
    expected = [result["y"].item() for result in results]
    assert [value.item() for value in kept_values] == expected[-len(kept_values) :]
    assert len(kept_values) in (1, 6)
    assert len(messages) == 1


def test_gradients_that_are_kept_outside_of_the_state_stay_current() -> None:
    def gradients(capture: bool) -> list[float]:
        weight = nn.Parameter(ones(1))
        optimizer, kept = optim.SGD([weight], 0.25), []

        def step(x: Any) -> Any:
            optimizer.reset_grad()
            (weight * weight * x).sum().backward()
            kept.append(weight.grad)
            optimizer.step()

        run = needle.capture(step, state=[weight, optimizer]) if capture else step
        for _ in range(5):
            run(ones(1))
        return [grad.item() for grad in kept]

    with pytest.warns(needle.CaptureWarning, match="the step keeps"):
        assert gradients(capture=True) == gradients(capture=False)


def test_a_result_stored_in_a_new_attribute_is_updated_by_replays() -> None:
    class Trainer:
        def step(self, x: Any) -> Any:
            self.last = x * 2.0
            return self.last + 1.0

    trainer = Trainer()
    step = needle.capture(trainer.step, state=trainer)
    for value in (1.0, 2.0, 3.0):
        assert step(ones(1) * value).item() == 2.0 * value + 1.0
        assert trainer.last.item() == 2.0 * value
    assert step.replays >= 1


def test_results_stored_in_hidden_objects_prevent_capture() -> None:
    class Sink:
        def __init__(self) -> None:
            self.items: list[Any] = []

        def __call__(self, item: Any) -> None:
            self.items.append(item)

    sink = Sink()
    hidden = {1: sink}.get

    def step(x: Any) -> Any:
        hidden(1)(x * 2.0)
        return x + 1.0

    _, messages = reasons(needle.capture(step), (ones(1),), (-ones(1),))
    assert [y.item() for y in sink.items] == [2.0, -2.0]
    assert "the step keeps" in messages[0]


def test_buffers_shared_by_two_arguments() -> None:
    step = needle.capture(lambda x, y: x + y)
    rows = needle.Tensor(np.arange(3.0).reshape(3, 1), device=needle.cpu(), requires_grad=False)
    x, y, z = (rows[i] for i in range(3))
    results, messages = reasons(step, (x, x), (x, y), (y, z), (z, z), (y, y))
    assert [r.item() for r in results] == [0.0, 1.0, 3.0, 4.0, 2.0]
    assert step.replays == 2
    assert len(messages) == 1
    assert "share one buffer" in messages[0]


def test_a_second_device_prevents_capture() -> None:
    def step(x: Any) -> Any:
        return (x + 1.0, needle.Tensor.make_const(other) + 1.0)

    other = needle.backend_ndarray.ones((2,), device=needle.cpu_numpy())
    results, messages = reasons(needle.capture(step), (ones(2),), (ones(2),))
    assert [r.numpy()[0] for r in results[1]] == [2.0, 2.0]
    assert len(messages) == 1
    assert "second device" in messages[0]


def test_computing_with_the_result_of_a_host_step_prevents_capture() -> None:
    weight = nn.Parameter(ones(1))

    def step(x: Any) -> Any:
        weight.grad = None
        (x * weight).sum().backward()
        return x * (2.0 if optim.optimizer.clip_grad_norm([weight], 9.0) > 1.5 else 3.0)

    captured = needle.capture(step, state=weight)
    results, messages = reasons(captured, (ones(1),), (ones(1) * 2.0,))
    assert [r.item() for r in results] == [3.0, 4.0]
    assert "the result differs" in messages[0]


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="the argument must be callable, got int"):
        needle.capture(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1"):
        needle.capture(print, recordings=0)


def test_numpy_mode_runs_eagerly() -> None:
    program = """
import warnings, numpy as np, needle
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    step = needle.capture(lambda x: x + 1.0)
    found = [step(needle.Tensor(np.ones(2))).numpy()[0] for _ in range(3)]
assert found == [2.0] * 3
assert [w.category for w in caught] == [needle.CaptureWarning], caught
assert "NEEDLE_BACKEND=np" in str(caught[0].message)
"""
    environment = {**os.environ, "NEEDLE_BACKEND": "np"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_the_numpy_device_is_recorded_too() -> None:
    x = needle.Tensor(np.ones(3), device=needle.cpu_numpy())
    step = needle.capture(lambda x: (x * 2.0).exp())
    found = [step(x).numpy() for _ in range(3)]
    np.testing.assert_array_equal(found, [(x * 2.0).exp().numpy()] * 3)
    assert step.replays == 2


@pytest.mark.parametrize("made", ["before", "within"])
@pytest.mark.parametrize("kind", [optim.Adam, optim.RMSprop])
def test_a_step_of_an_optimizer_outside_of_the_state(made: str, kind: Any) -> None:
    def losses(capturing: bool) -> list[float]:
        weight = nn.Parameter(needle.Tensor([1.0, -2.0], device=needle.cpu()))
        kept = [kind([weight], lr=0.1)] if made == "before" else []

        def step(x: Any) -> Any:
            if not kept:
                kept.append(kind([weight], lr=0.1))
            kept[0].reset_grad()
            loss = (weight * weight * x).sum()
            loss.backward()
            kept[0].step()
            return loss

        call: Any = needle.capture(step, state=[weight]) if capturing else step
        results, messages = reasons(call, *[(ones(1),)] * 6)
        assert len(messages) == capturing and all("state=[" in each for each in messages)
        return [r.item() for r in results]

    assert losses(True) == losses(False)


def test_a_generator_outside_of_the_state() -> None:
    def draws(capturing: bool) -> list[float]:
        generator = needle.init.Generator(3)

        def step(x: Any) -> Any:
            return x + needle.init.rand(1, device=needle.cpu(), generator=generator)

        call: Any = needle.capture(step) if capturing else step
        results, messages = reasons(call, *[(ones(1),)] * 5)
        assert len(messages) == capturing
        return [r.item() for r in results]

    assert draws(True) == draws(False)
