"""Helpers that test a backend package without installing it: entry point, PYTHONPATH, commands."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from needle.testing.new_backend import package_files

ROOT = Path(__file__).resolve().parents[2]


def imported(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """Import and return the package of a device ``toy`` in this folder, which is not installed."""
    patch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.split(".")[0] == "needle_toy"]:
        patch.delitem(sys.modules, name)
    return importlib.import_module("needle_toy")


def assert_written(example: Path, name: str, kind: str, own: tuple[str, ...]) -> None:
    """Assert that an example is the package of new_backend, except for hand-written files."""
    for path, text in package_files(name, kind).items():
        if path not in own:
            assert (example / path).read_text() == text, f"{path}: write it anew by package_files"
        assert (example / path).exists()
    assert (example / f"needle_{name}" / "known_failures.txt").read_text() == ""


def entry_point(package: Path, name: str) -> None:
    """Write the metadata of an installed package, as pip does, so that PYTHONPATH suffices."""
    info = package / f"needle_{name}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: needle-{name}\nVersion: 0.1.0\n")
    declared = (package / "pyproject.toml").read_text().split("needle.backends", 1)[1]
    line = next(line for line in declared.splitlines() if "=" in line).replace('"', "")
    (info / "entry_points.txt").write_text(f"[needle.backends]\n{line}\n")


def command(*arguments: str | Path, path: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in another folder, with needle and ``path`` on the path."""
    settings = {"NEEDLE_BACKEND": "nd", "OMP_NUM_THREADS": "2"}
    places = [str(ROOT / "python"), str(ROOT), str(path)]
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), **settings},
        cwd=path,
        capture_output=True,
        text=True,
        timeout=1200,
    )


def judge(path: Path, name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return command("-m", "needle.testing.conformance", name, *arguments, path=path)
