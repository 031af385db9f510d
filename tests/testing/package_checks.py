"""A backend's package in tests without installing it: entry point, PYTHONPATH, commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
