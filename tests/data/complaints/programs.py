"""Helpers that run programs in their own processes and inspect processes.

They read Linux's /proc; tests that need it are skipped on other systems (``linux``).
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from proc import INTERRUPTIBLE

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (ROOT / "python", ROOT / "tests" / "data")
PATIENCE = 80  # timeout of a program in seconds

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
ENGINES: list[dict[str, Any]] = [
    {},
    {"num_workers": 2, "engine": "threads"},
    {"num_workers": 2, "engine": "processes"},
]
engines = pytest.mark.parametrize("options", ENGINES, ids=["inline", "threads", "processes"])


def start(folder: Path, text: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start this program in a session of its own, optionally under the command ``wrapper``."""
    file = folder / "program.py"
    file.write_text(INTERRUPTIBLE + text)
    wrapper = options.pop("wrapper", [])
    return subprocess.Popen(
        [*wrapper, sys.executable, str(file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment(**options.pop("variables", {})),
        **options,
    )


def run(
    folder: Path, text: str, *arguments: str, patience: float = PATIENCE, **options: Any
) -> str:
    """Run this program and return its output; raise AssertionError if it fails or times out."""
    program = start(folder, text, *arguments, **options)
    try:
        out, err = program.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        program.kill()
        out, err = program.communicate()
        raise AssertionError(f"still running after {patience} s:\n{out}\n{err}") from None
    assert program.returncode == 0, f"exit status {program.returncode}:\n{out}\n{err}"
    return out


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment, with needle and these tests on the import path."""
    path = os.pathsep.join(map(str, FOLDERS))
    return {**os.environ, "PYTHONPATH": path, **variables}


def own_shared_memory(megabytes: int) -> list[str]:
    """Return a command that gives a program its own /dev/shm; skip the test if that is not
    permitted.
    """
    mount = f'mount -t tmpfs -o size={megabytes}m tmpfs /dev/shm && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, timeout=30)
    except OSError:
        pytest.skip("there is no unshare")
    if done.returncode:
        pytest.skip(f"mounting is not allowed: {done.stderr.decode().strip()}")
    return command


def threads(pid: int) -> int:
    """Return the number of threads of a process."""
    return len(os.listdir(f"/proc/{pid}/task"))


def proportional_bytes(pids: set[int]) -> int:
    """Return the memory of these processes together, shared pages counted once (PSS)."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
