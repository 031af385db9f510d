"""CPU seconds and memory of a process and all its descendants, from /proc.

Without /proc (macOS) CPU time is that of the process and its ended children, and memory is unknown.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def descendants(root: int) -> list[int]:
    """Return ``root`` and all its living descendants."""
    below: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            fields = stat_fields(int(entry.name))
            if fields:
                below.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += below.get(pid, [])
    return found


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name (state, parent, ...).

    Empty if it ended.
    """
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def cpu_seconds(root: int) -> float:
    """Return user and system time of the tree, including children already waited for."""
    if not PROC.is_dir():
        return sum(os.times()[:4])
    ticks = 0
    for pid in descendants(root):
        fields = stat_fields(pid)
        ticks += sum(map(int, fields[11:15])) if fields else 0
    return ticks / TICKS


def pss_bytes(root: int) -> int:
    """Return the proportional memory (PSS) of the tree, which counts shared pages once."""
    return sum(_pss(pid) for pid in descendants(root)) if PROC.is_dir() else 0


def _pss(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


class PeakMemory:
    """A context that samples ``pss_bytes`` of a tree and keeps the maximum."""

    def __init__(self, root: int, interval: float = 0.05) -> None:
        self.root, self.interval, self.peak = root, interval, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, pss_bytes(self.root))
            if self._stop.wait(self.interval):
                return
