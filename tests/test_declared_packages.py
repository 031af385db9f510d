"""Check that pyproject.toml declares every package that needle, its apps and its tests import.

An environment may contain more than was requested: the venv module of Python 3.11 installs
setuptools, and each extra brings dependencies of its own. A test that needs such a package fails
elsewhere.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from source_tree import ROOT

sys.path.append(str(ROOT / "tools"))
from requirements import requirements, tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = ("python", "tests", "apps", "examples", "tools")
NAMES = {
    "PIL": "pillow",
    "aiobotocore": "s3fs",
    "cv2": "opencv-python-headless",
    "eventlet": "swift",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""The declared distribution of a module, if it has another name."""
PROVIDED = {"pip", "needle_toy", "edited_exercise"}
"""pip, which the venv module installs, and modules that tests write."""
NAMED_IN_CALLS = {"importorskip", "import_module", "find_spec", "version"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """Return the names of the distributions that needle and these extras declare."""
    lines = requirements(PROJECT, list(extras))
    return {normal(re.match(r"[\w.-]+", line)[0]) for line in lines}  # type: ignore[index]


def named(node: ast.AST) -> Iterator[str]:
    """Yield the modules that an import, or a call such as ``importorskip``, names."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(level=0, module=str(name)):
            yield name
        case ast.Call(
            func=ast.Name(id=call) | ast.Attribute(attr=call),
            args=[ast.Constant(value=str(name)), *_],
        ) if call in NAMED_IN_CALLS:
            yield name


def foreign_imports() -> dict[str, Path]:
    """Return the imported modules of other projects, each with one file that imports it."""
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    files.append(ROOT / "hw_notebook.py")
    own = {path.stem for path in files} | {path.parent.name for path in files} | PROVIDED
    found: dict[str, Path] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in named(node):
                found.setdefault(name.split(".")[0], path)
    known = own | sys.stdlib_module_names | {""}
    return {name: path for name, path in found.items() if name not in known}


def test_an_extra_declares_each_imported_package() -> None:
    known = declared(*PROJECT["optional-dependencies"])
    found = foreign_imports()
    assert len(found) > 20
    missing = {
        name: str(path.relative_to(ROOT))
        for name, path in found.items()
        if normal(NAMES.get(name, name)) not in known
    }
    assert not missing, "no extra of pyproject.toml declares these"


def required(name: str, installed: dict[str, Distribution], found: set[str]) -> None:
    """Add ``name`` and the installed distributions that it requires to ``found``."""
    if name in found or name not in installed:
        return
    found.add(name)
    for line in installed[name].requires or []:
        if "extra ==" not in line:
            required(normal(re.match(r"[\w.-]+", line)[0]), installed, found)  # type: ignore[index]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of links to exactly what ``pip install 'needle[build,test]'`` installs."""
    installed = {normal(found.metadata["Name"]): found for found in distributions()}
    wanted: set[str] = set()
    for name in declared("build", "test"):
        required(name, installed, wanted)
    folder = tmp_path_factory.mktemp("site")
    for name in wanted:
        parts = {path.parts[0] for path in installed[name].files or [] if path.parts[0] != ".."}
        for part in parts - {"__pycache__"}:
            place = folder / part
            if not place.exists():
                place.symlink_to(installed[name].locate_file(part))  # type: ignore[arg-type]
    return folder


def test_tests_are_collected_without_the_machines_own_packages(site: Path) -> None:
    """``-S`` drops site-packages; these folders import packages of many projects."""
    paths = [site, ROOT / "python", ROOT, ROOT / "tests" / "data"]
    folders = [f"tests/{name}" for name in ("docs", "notebook", "testing")]
    options = "--collect-only -q -p no:cacheprovider -p no:xdist".split()
    done = subprocess.run(
        [sys.executable, "-S", "-m", "pytest", *options, *folders],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONNOUSERSITE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
