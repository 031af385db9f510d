"""Builds what the C++ exercises need: the ladders' programs, in build/course, without the module
for Python. Called by ``checking`` and ``proof``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDERS = ("build/course", "build/make")
"""Where the ladders' programs may lie: built by ``build`` here, or by ``make``."""
LADDERS = ("gemm_ladder", "conv_ladder")


def ladder_program(root: Path, ladder: str) -> Path | None:
    """The newest program of that ladder in a tree; None where none is built."""
    places = [root / folder / "apps" / "bench" / ladder / ladder for folder in FOLDERS]
    built = [place for place in places if place.is_file()]
    return max(built, key=lambda place: place.stat().st_mtime, default=None)


def build(root: Path) -> str:
    """Compiles what changed; "" or what the compiler said, its first error first.

    The first time takes minutes: all kernels, since the last steps are the library's.
    """
    folder = root / FOLDERS[0]
    if not (folder / "build.ninja").is_file():
        configured = _run(
            [
                _tool("cmake"),
                "-S",
                str(root),
                "-B",
                str(folder),
                "-G",
                "Ninja",
                f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DNEEDLE_BUILD_PYTHON=OFF",
                "-DNEEDLE_BUILD_TESTS=ON",
            ]
        )
        if configured:
            return configured
    jobs = str(os.cpu_count() or 1)
    return _run([_tool("cmake"), "--build", str(folder), "-j", jobs, "--target", *LADDERS])


def _tool(name: str) -> str:
    """The program beside this Python, else the one on the path."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.is_file() else shutil.which(name) or name


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return f"{command[0]} is not installed; python -m pip install cmake ninja"
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).splitlines()
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    return "\n".join(lines[first : first + 6])
