"""Compile new_backend's C++ package with the example's kernels: it passes conformance.

Skipped where a compiler, CMake, pybind11 or OpenMP is missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from needle.backend_selection import BACKEND
from needle.testing.new_backend import write_package
from tests.testing.package_checks import ROOT, assert_written, command, entry_point, judge

OPENMP = ROOT / "examples" / "backend_openmp"
OWN_FILES = ("README.md", "CMakeLists.txt", "src/kernels.cc", "needle_openmp/known_failures.txt")

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="devices are of needle's own arrays")


def compile_package(folder: Path, optimisation: str) -> None:
    """Build the package's module in place by its CMakeLists.txt."""
    pybind11 = pytest.importorskip("pybind11")
    beside = Path(sys.executable).with_name("cmake")
    cmake = str(beside) if beside.exists() else shutil.which("cmake")
    if cmake is None or not (shutil.which("c++") or "CXX" in os.environ):
        pytest.skip("no CMake or no C++ compiler")
    build = folder / "build"
    configure = [
        *(cmake, "-S", folder, "-B", build, f"-DCMAKE_CXX_FLAGS_RELEASE={optimisation}"),
        *(f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"),
    ]
    done = subprocess.run(configure, capture_output=True, text=True)
    if "Could NOT find OpenMP" in done.stdout + done.stderr:
        pytest.skip("the compiler has no OpenMP")
    assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run([cmake, "--build", build], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def filled_package(folder: Path, optimisation: str) -> Path:
    """Return the package that new_backend writes, compiled with the example's kernels."""
    package = write_package("openmp", "cpp", folder / "openmp")
    for name in ("CMakeLists.txt", "src/kernels.cc"):
        shutil.copy(OPENMP / name, package / name)
    compile_package(package, optimisation)
    entry_point(package, "openmp")
    return package


@pytest.mark.soak
def test_the_empty_package_compiles_and_fails_as_listed(tmp_path: Path) -> None:
    folder = write_package("toy", "cpp", tmp_path / "toy")
    compile_package(folder, "-O0")
    entry_point(folder, "toy")
    done = judge(folder, "toy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the ten: 0 done" in done.stdout


@pytest.mark.slow
def test_the_kernels_of_the_example_complete_it(tmp_path: Path) -> None:
    folder = filled_package(tmp_path, "-O0")
    done = judge(folder, "openmp", "--only", "fill")
    assert done.returncode == 1 and "listed as failing but not so: fill" in done.stdout
    failures = folder / "needle_openmp" / "known_failures.txt"
    done = judge(folder, "openmp", "--shrink", failures)
    assert done.returncode == 0 and " 0 FAILS" in done.stdout, done.stdout + done.stderr
    assert failures.read_text() == ""


@pytest.mark.soak
def test_lenet_trains_on_the_example(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = filled_package(tmp_path, "-O3")
    options = ["--device", "openmp", "--epochs", "1", "--out", tmp_path / "run"]
    done = command(ROOT / "apps" / "train.py", *options, path=folder)
    assert done.returncode == 0, done.stderr
    accuracy = float(done.stdout.split("test accuracy ")[1].split("%")[0])
    assert "device openmp" in done.stdout and accuracy > 80


def test_the_example_is_such_a_package() -> None:
    assert_written(OPENMP, "openmp", "cpp", OWN_FILES)
