"""Test apps/train.py --find-lr: rates, losses, suggestion, and that the run does not change."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import needle
from apps import train as program
from apps.training import range_test as module
from apps.training.range_test import RangeTest, range_test, remark
from needle import nn

for package in program.PACKAGES:
    pytest.importorskip(package)

pytestmark = pytest.mark.usefixtures("few")
SMALL = ["--data", "few", "--epochs", "2", "--batch-size", "16", "--no-report"]


def parabola(start: float, curvature: float) -> Any:
    """Return a run whose loss is curvature * w**2 / 2 + 0.01, trained by gradient descent."""
    place = {"device": needle.cpu(), "dtype": "float64"}
    model = nn.Linear(1, 1, bias=False, **place)
    (weight,) = model.parameters()
    weight.data = needle.Tensor([[start]], **place)

    def gradients(images: Any, labels: Any) -> tuple[float, None]:
        value = weight.numpy().item()
        weight.grad = needle.Tensor([[curvature * value]], **place)
        return curvature * value**2 / 2 + 0.01, None

    optimizer = needle.optim.SGD([weight], 1.0)
    loader = [(None, None)] * 3
    return SimpleNamespace(model=model, gradients=gradients, optimizer=optimizer, loader=loader)


@pytest.mark.parametrize(("start", "curvature"), [(2.0, 30.0), (0.5, 9.0)])
def test_rates_losses_and_suggestion_are_those_of_the_method(
    start: float, curvature: float
) -> None:
    found = range_test(parabola(start, curvature))
    rates = np.geomspace(1e-6, 10, 100)
    weight, losses = start, []
    for rate in rates:
        losses.append(curvature * weight**2 / 2 + 0.01)
        weight *= 1 - rate * curvature
    smoothed = []
    for i in range(100):
        weights = 0.8 ** np.arange(i, -1, -1)
        smoothed.append(np.dot(weights, losses[: i + 1]) / weights.sum())
    end = next(i for i in range(100) if smoothed[i] > 4 * min(smoothed[: i + 1])) + 1
    assert 60 < end < 100
    np.testing.assert_allclose(found.rates, rates[:end], rtol=1e-12)
    np.testing.assert_allclose(found.losses, losses[:end], rtol=1e-9)
    np.testing.assert_allclose(found.smoothed, smoothed[:end], rtol=1e-9)
    lowest = rates[np.argmin(smoothed[:end])]
    assert found.lowest == pytest.approx(lowest) and found.suggestion is not None
    assert found.suggestion == pytest.approx(lowest / 10, rel=0.05)
    assert (
        0.01 < found.suggestion * curvature < 2
    )  # gradient descent diverges from 2 / curvature on


def test_a_loss_that_is_not_finite_ends_the_test() -> None:
    run, calls = parabola(1.0, 1.0), []

    def gradients(images: Any, labels: Any) -> tuple[float, None]:
        calls.append(1)
        return (3.0 - 0.1 * len(calls) if len(calls) < 8 else float("nan")), None

    run.gradients = gradients
    run.optimizer.step = lambda: None
    found = range_test(run)
    assert len(found.losses) == 7 and len(calls) == 8


def test_a_loss_that_never_falls_gives_no_suggestion() -> None:
    found = RangeTest([1e-6, 1e-5], [1.0, 2.0], [1.0, 1.6])
    assert found.suggestion is None
    assert remark(found) == "no suggestion: no learning rate lowered the loss"


def test_the_table_depends_on_the_seed_alone_and_a_run_may_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        out = ["--out", str(tmp_path / name), "--seed", seed]
        assert program.main([*SMALL, *out, "--find-lr"]) == 0
        tables.append((tmp_path / name / module.RATE_TABLE).read_text())
    assert tables[0] == tables[1] != tables[2]
    rows = list(csv.DictReader(tables[0].splitlines()))
    assert float(rows[0]["lr"]) == 1e-6 and float(rows[-1]["loss"]) > 0
    said = capsys.readouterr().out
    assert "suggestion: --lr 0.0" in said and "lowest smoothed loss" in said
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        *(module.RATE_PICTURE, module.RATE_TABLE, ".lock")
    }
    for more in ([], ["--force"]):
        assert program.main([*SMALL, "--out", str(tmp_path / "c"), *more]) == 0
        assert (tmp_path / "c" / module.RATE_PICTURE).exists()


def test_a_run_is_not_changed_by_the_test_of_its_weights(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    assert program.main([*SMALL, *out]) == 0

    def content() -> dict[str, bytes]:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]
        return {path.name: path.read_bytes() for path in files}

    before = content()
    assert program.main([*out, "--resume", "--find-lr"]) == 0
    after = content()
    table = after.pop(module.RATE_TABLE)
    after.pop(module.RATE_PICTURE)
    assert after == before
    assert program.main([*SMALL, "--out", str(tmp_path / "new"), "--find-lr"]) == 0
    assert (tmp_path / "new" / module.RATE_TABLE).read_bytes() != table
