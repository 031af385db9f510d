"""Helpers for tests that run this repository's programs in separate processes."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(
    *arguments: object, cwd: Path | str | None = None, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments and further environment variables; return its output.

    check: whether a program that fails also fails the test.
    """
    paths = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert not check or done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done
