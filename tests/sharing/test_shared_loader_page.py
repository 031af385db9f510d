"""Run the examples of docs/shared_loader.md and its appendix."""

from __future__ import annotations

import re
from pathlib import Path

from tests.programs import python

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "shared_loader.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROOFS = (ROOT / "docs" / "internals" / "shared_loader_proofs.md").read_text(encoding="utf-8")
EXAMPLE, PLANNER = re.findall(r"```python\n(.*?)```", TEXT + PROOFS, re.DOTALL)


def run(code: str, folder: Path) -> str:
    return python("-c", code, cwd=folder).stdout


def test_two_tasks_are_served_by_one_reading(tmp_path: Path) -> None:
    found = re.search(r"(\d+) reads for (\d+) samples", run(EXAMPLE, tmp_path))
    assert found and found[0] in EXAMPLE


def test_the_planner_can_be_tried_alone(tmp_path: Path) -> None:
    assert run(PLANNER, tmp_path).startswith("[Draw(index=")
