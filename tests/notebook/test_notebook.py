"""Test hw_notebook.ipynb: it equals its source, runs from top to bottom, has no outputs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from apps.notebook import exercises

ROOT = Path(__file__).resolve().parents[2]


def test_the_notebook_is_valid_and_without_outputs() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "hw_notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and all(not cell.outputs and cell.execution_count is None for cell in code)


def test_writing_it_again_from_its_source_changes_nothing() -> None:
    pytest.importorskip("jupytext")
    from apps.notebook.__main__ import NOTEBOOK, notebook_text

    assert NOTEBOOK.read_text(encoding="utf-8") == notebook_text(), "run make notebook"


def test_where_exercises_are_met_they_are_shown() -> None:
    """Test the tables of exercises; tests/apps/test_course.py checks that they are complete."""
    registry = pytest.importorskip("apps.course.registry")
    sgd = registry.exercises()["sgd"]
    assert f"| `sgd` | {sgd.title} | {sgd.minutes} |" in str(exercises("record", "sgd"))
    with pytest.raises(registry.RegistryError, match="sgd"):
        exercises("sgdd")


def test_the_notebook_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    """Run all cells one after another in one program, as Run All does."""
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("matplotlib")
    notebook = nbformat.read(ROOT / "hw_notebook.ipynb", as_version=4)
    program = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"test accuracy ([\d.]+)%", done.stdout)
    assert accuracy and float(accuracy[1]) >= 95
    assert "check the op's gradient" in done.stdout  # the op that forgets a term
    assert re.search(r"^softmax +FAILS", done.stdout, re.MULTILINE)  # the textbook's softmax
