"""docs/shared_loader.md and its appendix: their examples run, their figures are computed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "shared_loader.md"
PICTURE = PAGE.with_suffix(".svg")
TEXT = PAGE.read_text(encoding="utf-8")
PROOFS = PAGE.with_name("shared_loader_proofs.md").read_text(encoding="utf-8")
EXAMPLE, PLANNER = re.findall(r"```python\n(.*?)```", TEXT + PROOFS, re.DOTALL)


def run(code: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_tasks_are_served_by_one_reading(tmp_path: Path) -> None:
    found = re.search(r"(\d+) reads for (\d+) samples", run(EXAMPLE, tmp_path))
    assert found and found[0] in EXAMPLE


def test_the_planner_can_be_tried_alone(tmp_path: Path) -> None:
    assert run(PLANNER, tmp_path).startswith("[Draw(index=")


def test_the_picture_says_what_the_page_says_of_it() -> None:
    pytest.importorskip("matplotlib")
    from apps.bench.data import sharing_picture

    said = re.search(r"independent (\d+) reads, coupled (\d+), planned (\d+)", TEXT)
    policies = "independent", "coupled", "planned"
    assert said is not None
    assert [sum(sharing_picture.rounds(policy)[1]) for policy in policies] == [
        int(number) for number in said.groups()
    ]
    drawn = re.findall(r"<!-- (\w+: \d+) reads", PICTURE.read_text(encoding="utf-8"))
    assert drawn == [f"{policy}: {reads}" for policy, reads in zip(policies, said.groups())]
