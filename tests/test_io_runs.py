"""Test checkpoints of runs: every part is restored bit for bit, or nothing changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import needle
from needle import io, nn, optim
from needle.errors import CheckpointError


class Net(nn.Module):
    def __init__(self, hidden: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, x: Any) -> Any:
        return self.body(x)


class Counter:
    """A stand-in for a loader; its state is a position."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: Any) -> None:
        self.position = state["position"]


def parts(hidden: int = 3, lr: float = 0.1) -> dict[str, Any]:
    model = Net(hidden)
    optimizer = optim.Adam(model.parameters(), lr=lr)
    schedule = optim.CosineLR(optimizer, 10)
    return {"model": model, "optimizer": optimizer, "schedule": schedule, "loader": Counter()}


def steps(parts: dict[str, Any], count: int) -> None:
    """Run optimiser steps on random batches drawn from NumPy's global stream."""
    device = parts["model"].parameters()[0].device
    for _ in range(count):
        x = needle.Tensor(np.random.randn(5, 4), device=device, dtype="float32")
        loss = (parts["model"](x) ** 2).sum()
        parts["optimizer"].reset_grad()
        loss.backward()
        parts["optimizer"].step()
        parts["schedule"].step()
        parts["loader"].position += 1


def bits(parts: dict[str, Any]) -> list[bytes]:
    return [p.numpy().tobytes() for p in parts["model"].state_dict().values()]


def test_a_resumed_run_gives_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    np.random.seed(1)
    whole = parts()
    steps(whole, 4)
    io.save_checkpoint(tmp_path / "c", **whole, extra={"note": [1, 2.5, None]})
    steps(whole, 3)
    drawn = np.random.randn(3)

    np.random.seed(2)
    again = parts(lr=0.7)
    steps(again, 1)
    extra = io.load_checkpoint(tmp_path / "c", **again)
    assert extra == {"note": [1, 2.5, None]}
    steps(again, 3)
    assert bits(again) == bits(whole)
    assert again["optimizer"].lr == whole["optimizer"].lr
    assert again["loader"].position == 7
    assert np.random.randn(3).tolist() == drawn.tolist()


def test_the_cached_half_of_a_normal_pair_is_saved(tmp_path: Path) -> None:
    """NumPy draws normal numbers in pairs and caches the second one in its state."""
    np.random.seed(0)
    np.random.randn(1)
    io.save_checkpoint(tmp_path / "c", model=Net())
    expected = np.random.randn(4).tolist()
    io.load_checkpoint(tmp_path / "c")
    assert np.random.randn(4).tolist() == expected


def test_parts_can_be_loaded_alone(tmp_path: Path) -> None:
    saved = parts()
    steps(saved, 2)
    io.save_checkpoint(tmp_path / "c", **saved, extra={"a": 1})
    np.random.seed(3)
    expected = np.random.rand()
    model = Net()
    np.random.seed(3)
    io.load_checkpoint(tmp_path / "c", model=model, random=False)
    assert bits({"model": model}) == bits(saved)
    assert np.random.rand() == expected
    assert io.checkpoint_extra(tmp_path / "c") == {"a": 1}


def test_a_checkpoint_of_another_model_changes_nothing(tmp_path: Path) -> None:
    io.save_checkpoint(tmp_path / "c", **parts(hidden=3))
    other = parts(hidden=5)
    steps(other, 2)
    before, rate = bits(other), other["optimizer"].lr
    with pytest.raises(CheckpointError, match=r"load_checkpoint: .*c \(saved from a Net\)"):
        io.load_checkpoint(tmp_path / "c", **other)
    assert bits(other) == before and other["optimizer"].lr == rate


def test_another_optimizer_or_schedule_changes_nothing(tmp_path: Path) -> None:
    io.save_checkpoint(tmp_path / "c", **parts())
    other = parts()
    other["optimizer"] = optim.SGD(other["model"].parameters())
    before = bits(other)
    with pytest.raises(CheckpointError, match="its optimizer was saved from Adam, got SGD"):
        io.load_checkpoint(tmp_path / "c", **other)
    other = {**parts(), "schedule": optim.StepLR(parts()["optimizer"], 3)}
    with pytest.raises(CheckpointError, match="its schedule was saved from CosineLR, got StepLR"):
        io.load_checkpoint(tmp_path / "c", schedule=other["schedule"])
    assert len(before) == 4


def test_a_late_failure_restores_everything(tmp_path: Path) -> None:
    """The loader is restored last. If it fails, model and optimiser have already changed."""

    class Refuses(Counter):
        def load_state_dict(self, state: Any) -> None:
            if state["position"] > 0:
                raise ValueError("Refuses: position must be 0")

    saved = parts()
    steps(saved, 2)
    io.save_checkpoint(tmp_path / "c", **saved)
    other = {**parts(lr=0.5), "loader": Refuses()}
    before = bits(other)
    with pytest.raises(CheckpointError, match="position must be 0"):
        io.load_checkpoint(tmp_path / "c", **other)
    assert bits(other) == before
    assert other["optimizer"].lr == 0.5 and other["optimizer"].steps == 0


def test_a_part_that_was_not_saved_is_named(tmp_path: Path) -> None:
    saved = parts()
    io.save_checkpoint(tmp_path / "c", model=saved["model"])
    with pytest.raises(CheckpointError, match="it contains no loader"):
        io.load_checkpoint(tmp_path / "c", loader=saved["loader"])


def test_plain_weights_are_no_checkpoint(tmp_path: Path) -> None:
    model = Net()
    io.save(tmp_path / "w", model.state_dict())
    with pytest.raises(CheckpointError, match=r"not a 'needle checkpoint 1'.*needle\.io\.load"):
        io.load_checkpoint(tmp_path / "w", model=model)
    model.load_state_dict(io.load(tmp_path / "w"))


@pytest.mark.parametrize(
    "value", [{1}, (1, 2), [(1,)], {1: "a"}, {"a": {None: 1}}, np.ones(2), b"a", 1j, object()]
)
def test_extra_that_json_would_change(value: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="save_checkpoint: JSON cannot represent"):
        io.save_checkpoint(tmp_path / "c", model=Net(), extra={"a": value})
    with pytest.raises(TypeError, match="save_checkpoint: JSON cannot represent"):
        io.save_checkpoint(tmp_path / "c", model=Net(), extra={3: 1})


def test_extra_comes_back_as_it_was(tmp_path: Path) -> None:
    extra = {"z": [1, -0.0, float("inf"), {"é": None}], "a": True, "": "\n\0", "big": 2**80}
    io.save_checkpoint(tmp_path / "c", model=Net(), extra={**extra, "n": np.float32(0.1)})
    assert io.checkpoint_extra(tmp_path / "c") == {**extra, "n": float(np.float32(0.1))}


DESCRIPTIONS: dict[str, Callable[[Any], Any]] = {
    "no JSON": lambda about: "{",
    "deep JSON": lambda about: "[" * 100_000,
    "a list": lambda about: [],
    "no extra": lambda about: {k: v for k, v in about.items() if k != "extra"},
    "no random": lambda about: {k: v for k, v in about.items() if k != "random"},
    "random of text": lambda about: {**about, "random": "x"},
    "another generator": lambda about: {**about, "random": {"bit_generator": "PCG64", "state": {}}},
    "no steps": lambda about: {**about, "optimizer": {"class": "Adam", "param_groups": []}},
    "groups of numbers": lambda about: {
        **about,
        "optimizer": {**about["optimizer"], "param_groups": [1]},
    },
    "infinite steps": lambda about: {
        **about,
        "optimizer": {**about["optimizer"], "steps": float("inf")},
    },
    "schedule of text": lambda about: {**about, "schedule": 3},
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_a_description_that_was_tampered_with_changes_nothing(name: str, tmp_path: Path) -> None:
    saved = parts()
    steps(saved, 1)
    io.save_checkpoint(tmp_path / "c", **saved)
    arrays, metadata = io.load_with_metadata(tmp_path / "c")
    changed = DESCRIPTIONS[name](json.loads(metadata["checkpoint"]))
    text = changed if isinstance(changed, str) else json.dumps(changed)
    io.save(tmp_path / "c", arrays, {**metadata, "checkpoint": text})
    other = parts(lr=0.5)
    before, numbers = bits(other), np.random.get_state()[1].tolist()
    with pytest.raises(CheckpointError, match="load_checkpoint: "):
        io.load_checkpoint(tmp_path / "c", **other)
    assert bits(other) == before and other["optimizer"].lr == 0.5
    assert np.random.get_state()[1].tolist() == numbers
