"""apps/train.py --device webgpu: LeNet-5 has the same losses as on the CPU."""

import csv
from pathlib import Path

import pytest

import needle
from apps import train as program
from apps.training import sources
from tests.apps import few_digits

for package in program.PACKAGES:
    pytest.importorskip(package)

COLUMNS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def trained(device: str, folder: Path) -> list[dict[str, float]]:
    """Train on a few digits; return the losses and accuracies of each epoch."""
    options = ["--data", "few", "--epochs", "2", "--batch-size", "16", "--no-report"]
    assert program.main([*options, "--device", device, "--out", str(folder)]) == 0
    with open(folder / "epochs.csv", newline="", encoding="utf-8") as file:
        return [{name: float(row[name]) for name in COLUMNS} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_lenet5_has_the_losses_of_the_cpu(tmp_path, monkeypatch):
    device = needle.webgpu()
    if not device.enabled():
        pytest.skip(device.why())
    monkeypatch.setitem(sources.SOURCES, "few", few_digits.source(80, 40))
    got = trained("webgpu", tmp_path / "gpu")
    expected = trained(needle.default_device().name, tmp_path / "cpu")
    assert len(got) == len(expected) == 2
    for epoch, reference in zip(got, expected):
        assert epoch == pytest.approx(reference, rel=2e-3)
