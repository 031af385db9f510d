"""The recipes of ARCHITECTURE.md, applied to a copy of the repository and checked there.

A fenced block under ``<!-- recipe: NAME file: PATH after: ANCHOR -->`` is inserted after (or
``before:``) the one line of the file that holds ANCHOR; without a file it is a script. The blocks
under ``<!-- check: NAME -->`` run last, in the same process as the recipe's script.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from needle import backends
from needle.backend_selection import BACKEND

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"<!-- (?P<kind>recipe|check): (?P<name>\w+)"
    r"(?: file: (?P<file>\S+) (?P<where>after|before): (?P<anchor>.+?))? -->\n"
    r"```\w+\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
PAGE = (ROOT / "ARCHITECTURE.md").read_text()

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="the recipes are about needle's arrays")


@dataclass
class Recipe:
    edits: list[re.Match[str]]
    script: str


def recipe(name: str) -> Recipe:
    blocks = [match for match in BLOCK.finditer(PAGE) if match["name"] == name]
    assert any(match["kind"] == "check" for match in blocks), f"recipe {name} has no check"
    return Recipe(
        [match for match in blocks if match["file"]],
        "\n".join(match["code"] for match in blocks if not match["file"]),
    )


def apply(edit: re.Match[str], tree: Path) -> None:
    path = tree / edit["file"]
    lines = path.read_text().splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if edit["anchor"] in line]
    assert len(places) == 1, f"{edit['file']}: {edit['anchor']!r} is on {len(places)} lines"
    lines.insert(places[0] + (edit["where"] == "after"), edit["code"])
    path.write_text("".join(lines))


def run(script: str, tree: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "python"), str(tree)])}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tree, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["op", "override", "backend", "transform"])
@pytest.mark.slow
def test_a_recipe_that_needs_no_build(name: str) -> None:
    found = recipe(name)
    assert not found.edits
    run(found.script, ROOT)


@pytest.mark.slow
@pytest.mark.skipif(not backends.available("cpu"), reason="the C++ backend is not built")
def test_the_kernel_recipe_builds_and_conforms(tmp_path: Path) -> None:
    pybind11 = pytest.importorskip("pybind11")
    found = recipe("kernel")
    shutil.copytree(ROOT / "src", tmp_path / "src")
    shutil.copytree(
        ROOT / "python", tmp_path / "python", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    shutil.copy(ROOT / "CMakeLists.txt", tmp_path)
    for edit in found.edits:
        apply(edit, tmp_path)
    build = tmp_path / "build"
    options = [
        "-DNEEDLE_ONLY_ISA=baseline;neon",  # what every machine of the architecture has
        "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
        "-DNEEDLE_CUDA=off",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    cmake = str(Path(sys.executable).with_name("cmake"))
    if not Path(cmake).exists():
        cmake = shutil.which("cmake") or pytest.skip("cmake is not installed")
    for command in (
        [cmake, "-S", str(tmp_path), "-B", str(build), *options],
        [cmake, "--build", str(build), "-j2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    run(found.script, tmp_path)
