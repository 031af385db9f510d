"""Test that an unfit Python or folder is reported in one line, before anything is installed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a script of the POSIX shell")


def preflight(python: Path | str) -> subprocess.CompletedProcess[str]:
    command = ["sh", ROOT / "tools" / "preflight.sh", python, "sh", "present"]
    return subprocess.run(command, capture_output=True, text=True)


def pretender(folder: Path, minor: int, build: str = "") -> Path:
    """Return a program that poses as Python 3 of this minor version."""
    file = folder / "python"
    file.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.{minor}.0" || echo "{minor} {build}"\n'
    )
    file.chmod(0o755)
    return file


def test_the_python_of_the_tests_is_accepted_in_silence() -> None:
    done = preflight(sys.executable)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_newer_python_gets_one_line_of_warning(tmp_path: Path) -> None:
    done = preflight(pretender(tmp_path, 99))
    assert done.returncode == 0 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("needle: warning: Python 3.99.0 is newer than 3.")


@pytest.mark.parametrize(
    ("minor", "build", "reason"),
    [(9, "", "needle needs 3.10 or later"), (14, "free-threaded", "a free-threaded build")],
)
def test_a_python_that_cannot_work_is_refused(
    minor: int, build: str, reason: str, tmp_path: Path
) -> None:
    done = preflight(pretender(tmp_path, minor, build))
    assert done.returncode == 1 and reason in done.stderr and "make PYTHON=" in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_does_not_use_the_build_folder_of_another_checkout(tmp_path: Path) -> None:
    for name in ("Makefile", "CMakeLists.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    cache = tmp_path / "build/make/CMakeCache.txt"

    def make(*goals: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make", *goals], cwd=tmp_path, capture_output=True, text=True)

    for place, status in ((ROOT, 2), (tmp_path / "gone", 2), (tmp_path, 0)):
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(f"A:STRING=b\nCMAKE_HOME_DIRECTORY:INTERNAL={place}\n")
        done = make("-n", "test")
        assert done.returncode == status, done.stderr
        assert not status or (str(place) in done.stderr and "make clean" in done.stderr)
        assert make("clean").returncode == 0 and not cache.exists()
    assert make("-n", "test").returncode == 0
