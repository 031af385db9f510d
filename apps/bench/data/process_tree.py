"""CPU seconds of a process and all its descendants, from /proc.

Without /proc (macOS), only the process and its children that have ended are counted.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def cpu_seconds(root: int) -> float:
    """Return the user and system time of a process tree, including children that have ended."""
    if not PROC.is_dir():
        return sum(os.times()[:4])
    found = {int(e.name): stat_fields(e) for e in PROC.iterdir() if e.name.isdigit()}
    tree = [root]
    for parent in tree:
        tree += [pid for pid, fields in found.items() if fields and int(fields[1]) == parent]
    return sum(int(ticks) for pid in tree for ticks in found.get(pid, [])[11:15]) / TICKS


def stat_fields(process: Path) -> list[str]:
    """Return the fields of /proc/PID/stat after the name (state, parent, ...).

    The list is empty if the process has ended.
    """
    try:
        text = (process / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
