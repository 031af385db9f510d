"""Test the average of weights: its formula, applying and restoring, saving and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import nn, optim
from needle.errors import CheckpointError


def build(device: Any = None) -> nn.Module:
    np.random.seed(0)
    return nn.Sequential(nn.Linear(3, 4, device=device), nn.BatchNorm1d(4, device=device))


def steps(model: nn.Module, average: optim.ExponentialAverage, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    place = model.parameters()[0].device
    for _ in range(count):
        x = ndl.Tensor(rng.standard_normal((6, 3)), device=place, dtype="float32")
        optimizer.reset_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()
        average.update()


def values(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def test_the_average_follows_its_formula(device: Any) -> None:
    model = build(device)
    average = optim.ExponentialAverage(model, 0.9)
    expected: dict[str, Any] = {}
    for step in range(4):
        steps(model, average, 1, step)
        for name, value in values(model).items():
            before = expected.get(name, value.astype(np.float64))
            expected[name] = 0.9 * before + 0.1 * value
    own = values(model)
    assert len(own) == 6  # with running mean and variance
    with average.applied():
        for name, value in values(model).items():
            np.testing.assert_allclose(value, expected[name], rtol=2e-6, atol=1e-7)
            moved = name != "0.bias"  # batch norm makes this bias's gradient 0
            assert np.array_equal(value, own[name]) != moved
    for name, value in values(model).items():
        np.testing.assert_array_equal(value, own[name])


def test_nothing_is_applied_before_the_first_update() -> None:
    model = build()
    before = values(model)
    with optim.ExponentialAverage(model).applied():
        for name, value in values(model).items():
            np.testing.assert_array_equal(value, before[name])


def test_a_checkpoint_continues_it_to_the_same_bits(tmp_path: Path) -> None:
    whole = build()
    average = optim.ExponentialAverage(whole, 0.9)
    steps(whole, average, 3, 1)
    ndl.io.save_checkpoint(tmp_path / "c", model=whole, average=average)
    steps(whole, average, 2, 2)
    again = build()
    resumed = optim.ExponentialAverage(again, 0.5)
    ndl.io.load_checkpoint(tmp_path / "c", model=again, average=resumed)
    assert resumed.decay == 0.9 and resumed.steps == 3
    steps(again, resumed, 2, 2)
    wanted, found = average.state_dict()["arrays"], resumed.state_dict()["arrays"]
    assert wanted.keys() == found.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("model", [None, [], ndl.nn.Linear])
def test_anything_but_a_model_is_refused(model: Any) -> None:
    with pytest.raises(TypeError, match="ExponentialAverage: model must be a Module, got"):
        optim.ExponentialAverage(model)


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"decay must be a number in \[0, 1\), got 1\.0"):
        optim.ExponentialAverage(build(), 1.0)
    average = optim.ExponentialAverage(build(), 0.9)
    average.update()
    other = optim.ExponentialAverage(nn.Linear(2, 2), 0.9)
    with pytest.raises(CheckpointError, match="belongs to another model: .*weight"):
        other.load_state_dict(average.state_dict())
    with pytest.raises(CheckpointError, match="options are out of range"):
        average.load_state_dict({**average.state_dict(), "decay": 2.0})
    assert average.decay == 0.9
