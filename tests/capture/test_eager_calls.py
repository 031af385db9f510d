"""What cannot be replayed rightly runs eagerly, is right, and is said once with its reason."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import needle
from needle import nn, optim

pytestmark = pytest.mark.skipif(
    needle.backend_selection.BACKEND != "nd" or not needle.cpu().enabled(),
    reason="needs the compiled backend",
)


def ones(*shape: int) -> needle.Tensor:
    return needle.ones(*shape, device=needle.cpu())


def reasons(step: Any, *calls: Any) -> tuple[list[Any], list[str]]:
    """What ``step`` gives for each call, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [step(*args) for args in calls]
    return results, [str(w.message) for w in caught if w.category is needle.CaptureWarning]


def test_control_flow_by_values_runs_eagerly_and_says_so_once() -> None:
    @needle.capture
    def step(x: Any) -> Any:
        return x * 2.0 if x.sum().item() > 0 else x * 3.0

    results, said = reasons(step, (ones(2),), (-ones(2),), (ones(2),))
    assert [r.numpy()[0] for r in results] == [2.0, -3.0, 2.0]
    assert len(said) == 1
    assert "values of an array are read" in said[0]
    assert "test_eager_calls.py line" in said[0]
    assert (step.recordings, step.replays) == (0, 0)


def test_a_step_that_is_given_another_number_each_time_is_not_recorded_for_ever() -> None:
    step = needle.capture(lambda x, number: x * number)
    results, said = reasons(step, *[(ones(1), float(i)) for i in range(30)])
    assert [r.numpy()[0] for r in results] == list(range(30))
    assert step.recordings < 10 and step.replays == 0 and step.programs == []
    assert len(said) == 1
    assert "no call's arguments are those of an earlier one; pass numbers as Tensors" in said[0]


@pytest.mark.parametrize("read", [bool, float, np.asarray, lambda t: t.numpy()])
def test_every_look_at_values_is_noticed(read: Any) -> None:
    def step(x: Any) -> Any:
        read(x.sum() if read is not np.asarray else x.sum().cached_data)
        return x + 1.0

    results, said = reasons(needle.capture(step), (ones(1),), (ones(1),))
    assert [r.numpy()[0] for r in results] == [2.0, 2.0]
    assert len(said) == 1


def test_data_of_the_host_must_be_an_argument() -> None:
    noise = iter(range(100))

    def step(x: Any) -> Any:
        return x + needle.Tensor(np.full(2, next(noise)), device=needle.cpu())

    results, said = reasons(needle.capture(step), *[(ones(2),)] * 3)
    assert [r.numpy()[0] for r in results] == [1.0, 2.0, 3.0]
    assert len(said) == 1
    assert "pass it in" in said[0]


def test_random_numbers_of_the_host() -> None:
    def step(x: Any) -> Any:
        return x * (2.0 if np.random.rand() < 0.5 else 3.0)

    np.random.seed(0)
    expected = [step(ones(1)).numpy()[0] for _ in range(6)]
    np.random.seed(0)
    results, said = reasons(needle.capture(step), *[(ones(1),)] * 6)
    assert [r.numpy()[0] for r in results] == expected
    assert len(said) == 1
    assert "random numbers" in said[0]


def test_a_counter_that_the_step_changes() -> None:
    layer = nn.Linear(2, 2, device=needle.cpu())
    layer.calls = 0

    def step(x: Any) -> Any:
        layer.calls += 1
        return layer(x) * float(layer.calls)

    captured = needle.capture(step)
    x = ones(1, 2)
    results, said = reasons(captured, *[(x,)] * 3)
    np.testing.assert_allclose(results[2].numpy(), 3 * results[0].numpy(), rtol=1e-6)
    assert layer.calls == 3
    assert len(said) == 1
    assert "changes layer.calls from 0 to 1" in said[0]


def test_values_that_others_change_are_noticed() -> None:
    settings = {"scale": 2.0}
    step = needle.capture(lambda x: x * settings["scale"])
    assert step(ones(1)).item() == 2.0
    settings["scale"] = 5.0
    assert step(ones(1)).item() == step(ones(1)).item() == 5.0
    assert (step.recordings, step.replays) == (2, 1)


def test_a_rate_that_the_step_reads_is_noticed() -> None:
    weight = nn.Parameter(ones(1))
    optimizer = optim.SGD([weight], lr=0.5)
    step = needle.capture(lambda x: x * optimizer.lr)
    assert step(ones(1)).item() == 0.5
    optimizer.lr = 0.25
    assert step(ones(1)).item() == 0.25


def test_what_changes_at_every_call_ends_in_eager_calls() -> None:
    settings = {"scale": 0.0}
    step = needle.capture(lambda x: x * settings["scale"])

    def call(scale: float) -> Any:
        settings["scale"] = scale
        return step(ones(1))

    results, said = reasons(call, *[(float(i),) for i in range(12)])
    assert [r.item() for r in results] == [float(i) for i in range(12)]
    assert len(said) == 1
    assert "settings.scale has changed" in said[0]


def test_results_kept_in_a_list_are_named() -> None:
    kept: list[Any] = []

    def step(x: Any) -> Any:
        y = x * 2.0
        kept.append(y)
        return y

    _, said = reasons(needle.capture(step), (ones(1),), (-ones(1),))
    assert [y.item() for y in kept] == [2.0, -2.0]
    assert len(said) == 1
    assert "length of the list kept" in said[0]


def test_a_result_kept_in_a_new_attribute_is_renewed() -> None:
    class Trainer:
        def step(self, x: Any) -> Any:
            self.last = x * 2.0
            return self.last + 1.0

    trainer = Trainer()
    step = needle.capture(trainer.step)
    for value in (1.0, 2.0, 3.0):
        assert step(ones(1) * value).item() == 2.0 * value + 1.0
        assert trainer.last.item() == 2.0 * value
    assert step.replays >= 1


def test_results_kept_out_of_sight_are_noticed() -> None:
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

    _, said = reasons(needle.capture(step), (ones(1),), (-ones(1),))
    assert [y.item() for y in sink.items] == [2.0, -2.0]
    assert "keeps 1 results" in said[0]


def test_buffers_shared_by_two_arguments() -> None:
    step = needle.capture(lambda x, y: x + y)
    rows = needle.Tensor(np.arange(3.0).reshape(3, 1), device=needle.cpu(), requires_grad=False)
    x, y, z = (rows[i] for i in range(3))
    results, said = reasons(step, (x, x), (x, y), (y, z), (z, z), (y, y))
    assert [r.item() for r in results] == [0.0, 1.0, 3.0, 4.0, 2.0]
    assert step.replays == 2
    assert len(said) == 1
    assert "share one buffer" in said[0]


def test_a_second_device() -> None:
    def step(x: Any) -> Any:
        return (x + 1.0, needle.Tensor.make_const(other) + 1.0)

    other = needle.backend_ndarray.ones((2,), device=needle.cpu_numpy())
    results, said = reasons(needle.capture(step), (ones(2),), (ones(2),))
    assert [r.numpy()[0] for r in results[1]] == [2.0, 2.0]
    assert len(said) == 1
    assert "second device" in said[0]


def test_computing_with_a_number_of_the_host() -> None:
    weight = nn.Parameter(ones(1))

    def step(x: Any) -> Any:
        weight.grad = None
        (x * weight).sum().backward()
        return x * (2.0 if optim.optimizer.clip_grad_norm([weight], 9.0) > 1.5 else 3.0)

    results, said = reasons(needle.capture(step), (ones(1),), (ones(1) * 2.0,))
    assert [r.item() for r in results] == [3.0, 4.0]
    assert "number of a host step is used" in said[0]


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="a function is needed"):
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
    np.testing.assert_array_equal(found, [np.exp(np.full(3, 2.0, "float32"))] * 3)
    assert step.replays == 2
