"""Compile the CUDA package that new_backend writes; it raises errors where it cannot run.

Without a GPU, kernels run on the emulator of tests/cuda_on_cpu; nvcc compiles them where it is
installed.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import pytest

from needle.backend_selection import BACKEND
from needle.backends.base import REQUIRED
from needle.errors import DeviceError
from needle.testing.new_backend import write_package
from tests.testing.package_checks import ROOT, command, entry_point, imported, judge
from tests.testing.test_compiled_backend import compile_package

EMULATOR = ROOT / "tests" / "cuda_on_cpu"
FIVE = ("allocate", "upload", "download", "fill", "copy")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the uncompiled package of a device ``toy`` as a module."""
    return imported(write_package("toy", "cuda", tmp_path / "toy"), monkeypatch)


def test_errors_name_what_is_missing(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="toy: the kernels are not compiled .*CUDACXX"):
        package.load()
    kernels: Any = types.ModuleType("needle_toy._kernels")
    kernels.why = lambda: "no driver"
    monkeypatch.setitem(sys.modules, "needle_toy._kernels", kernels)
    with pytest.raises(DeviceError, match=r"no GPU can be used here \(no driver\)"):
        package.load()
    vars(kernels).update(dict.fromkeys(REQUIRED, print))
    kernels.why, kernels.__device_name__ = lambda: "", "toy"
    assert "matmul" in package.load().known_failures


@pytest.mark.soak
def test_without_nvcc_nothing_is_compiled(tmp_path: Path) -> None:
    folder = write_package("toy", "cuda", tmp_path / "toy")
    cmake = shutil.which("cmake", path=Path(sys.executable).parent) or shutil.which("cmake")
    if cmake is None or not shutil.which("c++"):
        pytest.skip("no CMake or no C++ compiler")
    nowhere = {**os.environ, "CUDACXX": str(tmp_path / "nvcc")}
    command_line = [cmake, "-S", folder, "-B", tmp_path / "build"]
    done = subprocess.run(command_line, capture_output=True, text=True, env=nowhere)
    assert done.returncode == 0, done.stderr
    assert "kernels are not compiled" in " ".join(done.stderr.split())


@pytest.mark.soak
@pytest.mark.skipif(BACKEND == "np", reason="devices are of needle's own arrays")
def test_it_compiles_with_nvcc(tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    folder = write_package("toy", "cuda", tmp_path / "toy")
    compile_package(folder, "-O0")
    entry_point(folder, "toy")
    done = judge(folder, "toy")
    if "no GPU can be used here" in done.stderr:
        assert done.returncode == 2 and "Traceback" not in done.stderr
    else:
        assert done.returncode == 0 and "the ten: 0 done" in done.stdout, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.skipif(BACKEND == "np", reason="devices are of needle's own arrays")
def test_half_of_the_ten_pass_on_the_emulated_gpu(tmp_path: Path) -> None:
    """Test that a second file of kernels compiles with only view.h and launch.h included."""
    pybind11 = pytest.importorskip("pybind11")
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = write_package("toy", "cuda", tmp_path / "toy")
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    paths = (EMULATOR, folder / "src", pybind11.get_include(), sysconfig.get_path("include"))
    sources = (
        *(Path(__file__).with_name("five_kernels.cu"), folder / "src" / "bindings.cc"),
        *(EMULATOR / f"{n}.cc" for n in "block memory watch sm90/tma sm90/wgmma".split()),
    )
    line = [
        *(compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"),
        *("-x", "c++", *sources, "-o", folder / "needle_toy" / f"_kernels{suffix}"),
        *(f"-I{path}" for path in paths),
    ]
    done = subprocess.run([str(each) for each in line], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entry_point(folder, "toy")
    failures = folder / "needle_toy" / "known_failures.txt"
    done = judge(folder, "toy", "--shrink", failures)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the ten: {len(FIVE)} done" in done.stdout
    assert not set(failures.read_text().split()) & set(FIVE)
    done = command(
        "-c", "import needle; print(needle.zeros(2, device=needle.device('toy')))", path=folder
    )
    assert done.returncode == 0, done.stderr
