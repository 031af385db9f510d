"""The programs that the exercises in C++ and CUDA are built into, run by their tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from apps.course.building import built_program

ROOT = Path(__file__).resolve().parents[2]


def output_of(name: str, *arguments: str) -> tuple[list[str], int]:
    """The lines that a program prints and how it ended; skips where it is not built."""
    program = built_program(ROOT, name)
    if program is None:
        pytest.skip(f"{name} is not built: python -m apps.course check builds it, so does make")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines(), done.returncode


def raise_open(lines: list[str]) -> None:
    """NotImplementedError where a program says that it met an empty block."""
    for line in lines:
        if line.startswith("NotImplementedError"):
            raise NotImplementedError(line.partition(": ")[2])
