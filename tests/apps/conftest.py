"""Fixtures of the programs' tests: few digits, the sources' path, no pictures."""

import os
from pathlib import Path

import pytest

from apps import train
from apps.training import sources
from tests.apps import few_digits

ROOT = Path(__file__).parents[2]


@pytest.fixture
def programs_find_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let started programs import the sources."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "python"), str(ROOT)]))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide a source with 80 training and 40 test digits, with random crops."""
    monkeypatch.setitem(sources.SOURCES, "few", few_digits.source(80, 40))


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the report's pictures, which take longer than small runs."""
    monkeypatch.setattr(train, "write_report", lambda *arguments: None)
