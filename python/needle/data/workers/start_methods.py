"""The start methods of worker processes, and what the system or the moment does not allow.

processes.py checks the method when an engine is made, launch.py before it forks.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from multiprocessing import process as multiprocessing_process
from pathlib import Path

from ...errors import WorkerError


def check_method(op: str, method: str | None) -> str:
    """Return ``method``, or the default; raise if the system or the moment does not allow it."""
    if os.name != "posix":
        raise WorkerError(
            f"{op}: engine='processes' needs a POSIX system (Linux, macOS), got {sys.platform}; "
            f"take engine='threads'"
        )
    if getattr(multiprocessing_process.current_process(), "_inheriting", False):
        raise WorkerError(
            f"{op}: this process is being started by multiprocessing, which runs the main program "
            f"again; put what makes the loader under: if __name__ == '__main__':"
        )
    if method is None:  # forking is not safe in any process of macOS
        return "spawn" if sys.platform == "darwin" else "forkserver"
    if method == "fork":
        refuse_fork(op)
    return method


def refuse_fork(op: str) -> None:
    """Raise WorkerError with the reason if this process cannot be forked safely."""
    reason = _fork_hazard()
    if reason is not None:
        raise WorkerError(
            f"{op}: start_method='fork' copies a process with one thread and no GPU in use, got "
            f"one where {reason}; take start_method='forkserver'"
        )


def _fork_hazard() -> str | None:
    if threading.active_count() > 1:
        names = ", ".join(thread.name for thread in threading.enumerate())
        return f"threads run ({names})"
    with suppress(OSError):
        if len(os.listdir("/proc/self/task")) > 1:
            return (
                "native threads run (of BLAS, OpenMP or needle's kernels; none start with "
                "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NEEDLE_NUM_THREADS=1)"
            )
    with suppress(OSError):
        if "/dev/nvidia" in Path("/proc/self/maps").read_text():
            return "CUDA is in use"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is in use"
    return None
