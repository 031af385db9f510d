"""A newcomer's path: clone, train, part 0 of the course, own pictures, a prediction.

Each step runs the command that the pages show. The compiled kernels are copied, not compiled.
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from apps.course import blocks, registry

for package in ("IPython", "bottle", "matplotlib"):
    pytest.importorskip(package)
Image = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
FRESH = {k: v for k, v in os.environ.items() if not k.startswith(("NEEDLE", "PYTHON", "MAKE"))}
DEVICE = "import needle; print(needle.default_device(), needle.__file__)"
RUN_NOTEBOOK = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for source in json.load(sys.stdin):
    shell.run_cell(source, store_history=True).raise_error()
"""


def run(folder: Path, *command: str, given: str = "", path: str = "") -> str:
    """Run a command in a folder; return what it prints."""
    environment = {**FRESH, "MPLBACKEND": "Agg", **({"PYTHONPATH": path} if path else {})}
    done = subprocess.run(
        command, cwd=folder, env=environment, input=given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(folder: Path, *arguments: str, given: str = "") -> str:
    return run(folder, sys.executable, *arguments, given=given, path=f"python{os.pathsep}.")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone of the repository with the kernels of this one."""
    if not (ROOT / ".git").exists() or shutil.which("make") is None:
        pytest.skip("needs a git repository and make")
    folder = tmp_path_factory.mktemp("newcomer")
    run(folder, "git", "clone", "--quiet", str(ROOT), "needle")
    for module in (ROOT / "python/needle/backend_ndarray").glob("*.so"):
        shutil.copy(module, folder / "needle/python/needle/backend_ndarray")
    bin_folder = folder / "venv" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (bin_folder / "python").chmod(0o755)
    return folder / "needle"


@pytest.fixture(scope="module")
def student(clone: Path) -> Path:
    """Return a student tree in which parts 0 and 1 are open."""
    tree = clone.parent / "course"
    said = python(clone, "-m", "apps.course", "student", str(tree), "--parts", "0-1")
    count = len(registry.select(["0-1"]))
    assert f"a student tree with {count} open exercises" in said
    return tree


def test_two_commands_train_a_network(clone: Path) -> None:
    """The option -o makes make skip the target build."""
    make = ["make", "-o", "build", "PACKAGES=present", f"VENV={clone.parent / 'venv'}"]
    said = run(clone, *make, "train", "ARGS=--epochs 3")
    accuracy = re.search(r"test accuracy ([\d.]+)%", said)
    assert accuracy and float(accuracy[1]) >= 93
    named = run(clone, str(clone.parent / "venv/bin/python"), "-c", DEVICE, path="python")
    assert named.split() == ["cpu()", str(clone / "python/needle/__init__.py")]


def test_part_0_is_answered_in_its_notebook(student: Path) -> None:
    """Write the answer into each cell, run its check, and train the network of the last cell."""
    (notebook,) = (student / "homework").glob("part0_*.ipynb")
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    answers = blocks.blocks_in(ROOT)
    for i, source in enumerate(sources):
        if begun := re.match(r"%%exercise (\S+)(?: (\d+))?\n", source):
            sources[i] = begun[0] + answers[begun[1]][int(begun[2] or 1) - 1].text
        elif source.startswith("check("):
            sources[i] = f"print({source})"
    said = run(notebook.parent, sys.executable, "-c", RUN_NOTEBOOK, given=json.dumps(sources))
    for exercise in registry.select(["0"]):
        points = f"{exercise.points} of {exercise.points} points"
        assert re.search(rf"\*\*{exercise.tag}: (\d+) of \1 tests pass\*\*, {points}", said), said
    errors = re.search(r"mean squared error ([\d.]+) before, ([\d.]+) after", said)
    assert errors and float(errors[2]) < float(errors[1]) / 4


def test_own_pictures_are_learnt_and_the_page_knows_one(clone: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for channel, name in ((0, "apple"), (2, "plum")):
        (tmp_path / "fruit" / name).mkdir(parents=True)
        for i in range(30):
            pixels = random.integers(0, 60, (24, 24, 3), dtype=np.uint8)
            pixels[..., channel] += 180
            Image.fromarray(pixels).save(tmp_path / "fruit" / name / f"{i}.png")
    out, fruit = tmp_path / "run", tmp_path / "fruit"
    options = ["--epochs", "8", "--batch-size", "8", "--image-size", "16"]
    python(clone, "apps/train.py", "--data", str(fruit), "--out", str(out), *options)
    with (out / "split.csv").open() as file:
        assert len(list(csv.reader(file))) in (60, 61)
    server = subprocess.Popen(
        [sys.executable, "apps/predict.py", "--checkpoint", str(out / "best.safetensors")]
        + ["--serve", "--port", "0"],
        cwd=clone,
        env={**FRESH, "PYTHONPATH": f"python{os.pathsep}."},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = next(line for line in server.stdout if "http://" in line).split()[0]
        picture = (fruit / "plum/3.png").read_bytes()
        with urllib.request.urlopen(f"{address}predict", picture, timeout=60) as reply:
            answer = json.load(reply)
    finally:
        server.terminate()
        server.wait()
    assert answer["classes"][0] == "plum"
