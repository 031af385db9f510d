"""The name and the measured limits of this machine: arithmetic and memory bandwidth.

Compiles and runs limits.cc. Called by train.py, the benchmarks and the notebook.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

SOURCE = Path(__file__).with_name("limits.cc")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-ffp-contract=fast", "-pthread")


def compiler() -> str | None:
    """Return $CXX or, if it is unset, the first common C++ compiler that is installed, or None."""
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((name for name in names if name and shutil.which(name)), None)


def measure(threads: int, seconds: float = 0.1) -> dict[str, float]:
    """Return "gflops", "gbs large" and "gbs small" (GB/s of 34 MB and 1 MB arrays).

    threads: number of threads. seconds: minimum duration of each sample. Raises RuntimeError if
    there is no compiler.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = [str(_built(Path(folder, "limits"))), str(threads), str(seconds)]
        limits: dict[str, float] = json.loads(subprocess.check_output(run, text=True))
    return limits


def peak_now(threads: int) -> Callable[[], float] | None:
    """Return a function that measures the current GFLOP/s of multiply-adds in this process.

    None without a compiler. The clock frequency of a shared machine changes from second to
    second; work measured right before or after this call runs at the same frequency.
    """
    if compiler() is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = ctypes.CDLL(str(_built(Path(folder, "limits.so"), "-shared", "-fPIC")))
    library.gflops_now.restype = ctypes.c_double
    return lambda: float(library.gflops_now(threads))


def _built(target: Path, *more: str) -> Path:
    found = compiler()
    if found is None:
        raise RuntimeError("limits: needs a C++ compiler to measure the machine, found none")
    command = [found, *FLAGS, *more, str(SOURCE), "-o", str(target)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(f"limits: {found} could not compile {SOURCE}: {built.stderr}")
    return target
