"""README.md: its examples run, and its lists agree with the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from needle.config import VARIABLES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(code: str, folder: Path) -> str:
    """Run a program in ``folder`` as a reader would; return its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_trains_saves_loads_predicts_and_plots(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    pytest.importorskip("matplotlib")
    example = EXAMPLES[0]
    found = re.search(r"test accuracy ([\d.]+)%", run(example, tmp_path))
    assert found and float(found[1]) >= 95
    assert {path.name for path in tmp_path.iterdir()} == {"digits.safetensors", "losses.png"}


def test_the_example_of_loading_says_where_transforms_run_and_what_limits(tmp_path: Path) -> None:
    output = run(EXAMPLES[1] + EXAMPLES[2], tmp_path)  # the second shares it with other programs
    assert "RandomCrop" in output and "limit:" in output, output
    assert "once for all tasks: none\nrun here: RandomCrop" in output, output


def test_the_example_of_capturing_replays(tmp_path: Path) -> None:
    assert len(EXAMPLES) == 4
    output = run(EXAMPLES[3], tmp_path)
    assert output.startswith("1 19") and "matmul(" in output, output


def test_every_environment_variable_is_listed_as_the_code_means_it() -> None:
    listed = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| (.*?) \|$", README, re.MULTILINE))
    assert listed == {variable.name: variable.meaning for variable in VARIABLES}


def test_the_options_shown_exist() -> None:
    pytest.importorskip("safetensors")
    shown = set(re.findall(r"--(?:model|data|download|out|resume|help)\b", README))
    help_text = subprocess.run(
        [sys.executable, "apps/train.py", "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "python"},
        capture_output=True,
        text=True,
    ).stdout
    assert shown and all(option in help_text for option in shown)
