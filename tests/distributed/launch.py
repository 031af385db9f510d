"""Starts a program under mpiexec, for the tests of this folder."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")

needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="MPI is not installed: pip install '.[mpi]'",
)


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with one thread for each rank."""
    paths = f"{ROOT / 'python'}{os.pathsep}{ROOT}"
    return {**os.environ, "PYTHONPATH": paths, "NEEDLE_NUM_THREADS": "1", **variables}


def command(processes: int, *arguments: object) -> list[str]:
    """Return the command line that runs Python with these arguments in several processes."""
    assert MPIEXEC is not None
    return [MPIEXEC, "-n", str(processes), sys.executable, *map(str, arguments)]


def run(
    processes: int, *arguments: object, seconds: float = 240, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the program until it exits; return the exit code and the output."""
    return subprocess.run(
        command(processes, *arguments),
        env=environment(**variables),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
