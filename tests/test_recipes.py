"""Apply the recipes of ARCHITECTURE.md to a copy of the repository, and check the result.

Each section under "## Recipes" is a recipe. A fenced block after a line ``**File `PATH`, after
`TEXT`**`` (or ``before``, or ``at the end``) is inserted next to the only line of the file that
contains TEXT; all other Python blocks of the section form one program.
"""

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
from tests.programs import python

ROOT = Path(__file__).resolve().parents[1]
SECTION = re.compile(r"^### (?P<title>.+?)\n(?P<body>.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(
    r"(?:^\*\*File `(?P<file>[^`]+)`, (?P<where>after|before|at the end)"
    r"(?: `(?P<anchor>[^`]+)`)?\*\*\n\n)?"
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
PAGE = (ROOT / "ARCHITECTURE.md").read_text().partition("## Recipes")[2]
MOST_FILES, MOST_COMPILED = 4, 2

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="the recipes are about needle's arrays")


@dataclass
class Recipe:
    edits: list[re.Match[str]]
    script: str


def recipe(title: str) -> Recipe:
    """Return the recipe whose section title starts like this."""
    (body,) = (m["body"] for m in SECTION.finditer(PAGE) if m["title"].startswith(title))
    blocks = list(BLOCK.finditer(body))
    assert body.count("**File") == sum(block["file"] is not None for block in blocks), title
    return Recipe(
        [block for block in blocks if block["file"]],
        "\n".join(b["code"] for b in blocks if not b["file"] and b["language"] == "python"),
    )


def apply(edit: re.Match[str], tree: Path) -> None:
    path = tree / edit["file"]
    lines = path.read_text().splitlines(keepends=True)
    if edit["where"] == "at the end":
        place = len(lines)
    else:
        places = [i for i, line in enumerate(lines) if edit["anchor"] in line]
        assert len(places) == 1, f"{edit['file']}: {edit['anchor']!r} is on {len(places)} lines"
        place = places[0] + (edit["where"] == "after")
    lines.insert(place, edit["code"])
    path.write_text("".join(lines))


def run(arguments: list[str], tree: Path, **variables: str) -> None:
    """Run Python with the copy's packages."""
    path = os.pathsep.join([str(tree / "python"), str(tree)])
    python(*arguments, cwd=tree, PYTHONPATH=path, **variables)


@pytest.mark.parametrize(
    "title", ["An op made of others", "A kernel for an operation", "A backend", "A transform"]
)
@pytest.mark.slow
def test_a_recipe_that_needs_no_build(title: str) -> None:
    found = recipe(title)
    assert not found.edits
    run(["-c", found.script], ROOT)


@pytest.mark.slow
@pytest.mark.skipif(not backends.available("cpu"), reason="the C++ backend is not built")
def test_a_dtype_then_an_elementwise_op_with_its_own_kernel(tmp_path: Path) -> None:
    """Both recipes share a copy, since a dtype compiles all kernels, as the first build does
    anyway.
    """
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.csv")
    for folder in ("src", "python", "tests", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    for file in ("CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path)
    follow(recipe("A dtype"), tmp_path)
    compiled = follow(recipe("An elementwise op"), tmp_path)
    assert 0 < len(compiled) <= MOST_COMPILED, compiled
    pytest_ = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    for backend in ("nd", "np"):
        run([*pytest_, "-k", "mish", "tests/ops"], tmp_path, NEEDLE_BACKEND=backend)
    run([*pytest_, "tests/accelerated", "tests/ndarray/test_dtypes.py"], tmp_path)


def follow(found: Recipe, tree: Path) -> list[str]:
    """Apply the edits of a recipe, build, and run its program; return the compiled sources."""
    assert len({edit["file"] for edit in found.edits}) <= MOST_FILES
    for edit in found.edits:
        apply(edit, tree)
    compiled = compile_(tree)
    run(["-m", "needle.ops.stubs"], tree)
    run(["-c", found.script], tree)
    return compiled


def compile_(tree: Path) -> list[str]:
    """Build the copy on the lowest instruction set only; return the sources that were compiled."""
    pybind11 = pytest.importorskip("pybind11")
    options = [
        "-DNEEDLE_ONLY_ISA=baseline;neon",  # the lowest instruction set of each architecture
        "-DCMAKE_CXX_FLAGS_RELEASE=-O0",
        "-DNEEDLE_CUDA=off",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    cmake = str(Path(sys.executable).with_name("cmake"))
    if not Path(cmake).exists():
        cmake = shutil.which("cmake") or pytest.skip("cmake is not installed")
    build, said = tree / "build", ""
    for command in (
        [cmake, "-S", str(tree), "-B", str(build), *options],
        [cmake, "--build", str(build), "-j2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        said += done.stdout
    return re.findall(r"Building CXX object (\S+)", said)
