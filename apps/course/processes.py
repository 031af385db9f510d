"""Processes that run a learner's code, in their own process group and for a limited time.

Called by ``checking`` and ``building``; ``grading`` gives the limits.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

STOPPED = 124
"""The status of a process that ``run_group`` stopped."""
MOST_OUTPUT = 1_000_000
"""Bytes of a process's output that are read."""


@dataclass(frozen=True)
class Guard:
    """Limits of processes.

    prefix: a command that runs the rest of its arguments under limits. environment: replaces this
    process's environment. deadline: the time, by ``time.monotonic``, at which all must have ended.
    """

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    deadline: float = math.inf

    def limit(self, seconds: float) -> float:
        """Return ``seconds``, or the time until the deadline if that is less."""
        return max(0.0, min(seconds, self.deadline - time.monotonic()))


UNLIMITED = Guard()


def run_group(
    command: Sequence[str],
    limit: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a process in a group of its own; return its status and output.

    When it ends, or after ``limit`` seconds (status STOPPED), the rest of the group is killed.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = STOPPED
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return subprocess.CompletedProcess(command, status, _content(out), _content(errors))


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_OUTPUT).decode("utf-8", "replace")
