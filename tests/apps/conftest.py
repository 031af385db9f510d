"""Fixtures for tests of the programs: a small data source, the import path, a run, images."""

import os
from pathlib import Path

import numpy as np
import pytest

from apps import train
from apps.training import sources
from needle import data
from tests.apps import few_digits

ROOT = Path(__file__).parents[2]


@pytest.fixture
def programs_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs that a test starts import this tree."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "python"), str(ROOT)]))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a data source with 80 training and 40 test digits and random crops."""
    monkeypatch.setitem(sources.SOURCES, "few", few_digits.source(80, 40))


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the report's pictures, which take longer than small runs."""
    monkeypatch.setattr(train, "write_report", lambda *arguments: None)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on the digits; the tests of its classifier use it."""
    for package in (*train.PACKAGES, "PIL"):
        pytest.importorskip(package)
    out = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "write_report", lambda *arguments: None)
        assert train.main(["--epochs", "3", "--ema", "0.9", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the test digits as enlarged files, which are downscaled when they are read."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    digits = data.Digits(train=False, layout="HWC")
    for i in range(60):
        image, label = digits[i]
        grey = np.round(image[..., 0] * 255).astype(np.uint8)
        large = np.kron(grey, np.ones((8, 8), np.uint8))
        Image.fromarray(large).save(folder / f"{i:03}-{label}.png")
    (folder / "notes.txt").write_text("no picture")
    return folder
