"""Do what a newcomer does: clone the repository and train with the command in the pages.

The compiled kernels are copied, not compiled.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
ROOT = Path(__file__).resolve().parents[2]
FRESH = {k: v for k, v in os.environ.items() if not k.startswith(("NEEDLE", "PYTHON", "MAKE"))}
DEVICE = "import needle; print(needle.default_device(), needle.__file__)"


def run(folder: Path, *command: str, **variables: str) -> str:
    """Run a command in a folder; return what it prints."""
    environment = {**FRESH, "MPLBACKEND": "Agg", **variables}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_two_commands_train_a_network(tmp_path: Path) -> None:
    """With -o, make skips the target ``build``."""
    if not (ROOT / ".git").exists() or shutil.which("make") is None:
        pytest.skip("needs a git repository and make")
    run(tmp_path, "git", "clone", "--quiet", str(ROOT), "needle")
    clone, program = tmp_path / "needle", tmp_path / "venv" / "bin" / "python"
    for module in (ROOT / "python/needle/backend_ndarray").glob("*.so"):
        shutil.copy(module, clone / "python/needle/backend_ndarray")
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    make = ["make", "-o", "build", "PACKAGES=present", f"VENV={tmp_path / 'venv'}"]
    said = run(clone, *make, "train", "ARGS=--epochs 3")
    accuracy = re.search(r"test accuracy ([\d.]+)%", said)
    assert accuracy and float(accuracy[1]) >= 93
    named = run(clone, str(program), "-c", DEVICE, PYTHONPATH="python")
    assert named.split() == ["cpu()", str(clone / "python/needle/__init__.py")]
