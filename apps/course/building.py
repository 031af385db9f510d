"""Builds the programs that C++ and CUDA exercises need, and the Python module of part 9.

Everything is built in build/course. Called by ``checking``, ``proof`` and the tests of part 9.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

from .processes import STOPPED, UNLIMITED, Guard, run_group

FOLDERS = ("build/course", "build/make")
"""Folders of compiled programs: the one that ``build`` uses, and the one that ``make`` uses."""
PROGRAMS = {
    "gemm_ladder": "apps/bench/gemm_ladder/gemm_ladder",
    "conv_ladder": "apps/bench/conv_ladder/conv_ladder",
    "course_kernels_test": "tests/cpp/course_kernels_test",
    "course_images_test": "tests/cpp/course_images_test",
    "course_cuda_test": "tests/cuda_on_cpu/course_cuda_test",
}
"""Paths in the build folder, by the name of the program and target."""
LONGEST = 1800
"""Seconds after which a build is stopped."""
LIBRARY = "backend_openmp"
"""The library of part 9: its sources are in examples/, its build in build/course."""
MODULE = "ndarray_backend_cpu"
"""The target of the compiled module of the device ``cpu``."""
PLAIN, FAST = "-O0", "-O3"
"""Optimisation of the library: for a check (compiles twice as fast), and for timing (as pip)."""


def built_program(root: Path, name: str) -> Path | None:
    """Return the newest program of that name in a tree; None if none is built."""
    places = [root / folder / PROGRAMS[name] for folder in FOLDERS]
    built = [place for place in places if place.is_file()]
    return max(built, key=lambda place: place.stat().st_mtime, default=None)


def build(root: Path, names: Collection[str], guard: Guard = UNLIMITED) -> str:
    """Compile what has changed in these programs or in the library.

    Returns "", or the compiler's output from the first error on. The first build takes minutes: it
    compiles all kernels for this machine's instruction set.
    """
    if LIBRARY in names:
        problem = build_backend(root, guard=guard)
        if problem:
            return problem
    programs = [name for name in names if name != LIBRARY]
    if not programs:
        return ""
    options = [
        "-DNEEDLE_BUILD_PYTHON=OFF",
        "-DNEEDLE_ONLY_ISA=native",
        "-DNEEDLE_BUILD_TESTS=ON",
    ]
    return _build(root, root / FOLDERS[0], options, programs, guard)


def build_module(root: Path) -> str:
    """Compile the changed parts of the tree's kernel module, the device ``cpu``.

    Returns "" or the compiler's output from the first error on. The module is written to its place
    among the Python sources. Objects are shared with the programs of ``build``.
    """
    if find_spec("pybind11") is None:
        return "pybind11 is not installed; python -m pip install pybind11"
    plan = root / FOLDERS[0] / "build.ninja"
    if plan.is_file() and MODULE not in plan.read_text("utf-8"):
        plan.unlink()  # configure again, with the module
    options = [
        "-DNEEDLE_BUILD_PYTHON=ON",
        "-DNEEDLE_CUDA=off",
        "-DNEEDLE_ONLY_ISA=native",
        "-DNEEDLE_BUILD_TESTS=ON",
        *_python_options(),
    ]
    return _build(root, root / FOLDERS[0], options, [MODULE])


def is_built(root: Path, name: str) -> bool:
    """Return True if ``build`` has been run before, so that only changes are compiled."""
    if name == LIBRARY:
        return any(_library_folder(root, PLAIN).glob("_kernels*.so"))
    return built_program(root, name) is not None


def _library_folder(root: Path, optimisation: str) -> Path:
    return root / FOLDERS[0] / f"{LIBRARY}{optimisation}"


def built_backend(root: Path, optimisation: str = PLAIN) -> Path:
    """Return the path of the module that ``build_backend`` has made."""
    return next(_library_folder(root, optimisation).glob("_kernels*.so"))


def build_backend(root: Path, optimisation: str = PLAIN, guard: Guard = UNLIMITED) -> str:
    """Compile the library (20 s, or 40 s optimised); return "" or the compiler's output."""
    if find_spec("pybind11") is None:
        return "pybind11 is not installed; python -m pip install pybind11"
    options = [
        "-DSKBUILD=ON",  # leaves the module in the build folder
        f"-DCMAKE_CXX_FLAGS_RELEASE={optimisation}",
        *_python_options(),
    ]
    folder = _library_folder(root, optimisation)
    return _build(root / "examples" / LIBRARY, folder, options, ["_kernels"], guard)


def _build(
    source: Path, folder: Path, options: list[str], targets: Collection[str], guard: Guard
) -> str:
    """Configure once, then compile what changed."""
    cache = folder / "CMakeCache.txt"
    if cache.is_file() and _source_of(cache) != source.resolve():
        shutil.rmtree(folder)  # the tree has moved; CMake would build the sources at the old path
    if not (folder / "build.ninja").is_file():
        configured = _run(
            [
                *(_tool("cmake"), "-S", str(source), "-B", str(folder), "-G", "Ninja"),
                *(f"-DCMAKE_MAKE_PROGRAM={_tool('ninja')}", "-DCMAKE_BUILD_TYPE=Release"),
                *options,
            ],
            guard,
        )
        if configured:
            return configured
    jobs = str(os.cpu_count() or 1)
    return _run([_tool("cmake"), "--build", str(folder), "-j", jobs, "--target", *targets], guard)


def _source_of(cache: Path) -> Path:
    """Return the folder of the sources that a build folder was configured for."""
    entry = re.search("^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)", cache.read_text("utf-8"), re.MULTILINE)
    return Path(entry[1] if entry else "/").resolve()


def _python_options() -> list[str]:
    """Return the options for a module of this Python."""
    place = _said([sys.executable, "-m", "pybind11", "--cmakedir"])
    return [f"-DPython_EXECUTABLE={sys.executable}", f"-Dpybind11_DIR={place}"]


def _tool(name: str) -> str:
    """Return the program in the folder of this Python, else the one on PATH."""
    own = Path(sys.executable).with_name(name)
    return str(own) if own.is_file() else shutil.which(name) or name


def _run(command: list[str], guard: Guard) -> str:
    try:
        done = run_group(
            [*guard.prefix, *command], guard.limit(LONGEST), environment=guard.environment
        )
    except FileNotFoundError:
        return f"{command[0]} is not installed; python -m pip install cmake ninja"
    if done.returncode == 0:
        return ""
    if done.returncode == STOPPED:
        return "the compiler was stopped: it took too long"
    lines = (done.stdout + done.stderr).splitlines()
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0)
    return "\n".join(lines[first : first + 6])


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
