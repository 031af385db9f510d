"""Facts about processes from Linux's /proc, for tests that kill, count and wait."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path

from needle.data.workers import shared_supervisor

INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""The first line of a program that is sent Ctrl-C: a job in the background may ignore it."""


def children(pid: int | None = None) -> set[int]:
    """Every process below ``pid`` (this one), zombies included.

    Python's own resource tracker is left out: once anything here used multiprocessing it stays.
    """
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        parent = stat(int(name), 1) if name.isdigit() else None
        if parent is not None:
            below.setdefault(int(parent), []).append(int(name))
    found: set[int] = set()
    left = [os.getpid() if pid is None else pid]
    while left:
        here = below.get(left.pop(), [])
        found.update(here)
        left += here
    tracker = getattr(resource_tracker, "_resource_tracker", None)
    return found - {getattr(tracker, "_pid", None)}


def remaining() -> set[int]:
    """Return the children without the supervisor, which stays for the next loader."""
    return children() - set(supervisors())


def supervisors() -> dict[int, str]:
    """Return the processes that start workers for this one, each with the name of its socket."""
    started = shared_supervisor._SUPERVISORS.get(os.getpid(), [])
    return {each.process.pid: _name(each._control.fileno()) for each in started}


def _name(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}") if descriptor >= 0 else ""


def descriptors() -> Counter[str]:
    """Return the open files of this process, as often as each is open.

    ``descriptors() <= before`` is true if nothing was left open since. A count would differ if an
    earlier test's garbage were collected in between, and would hide as many leaks. The sockets of
    ``supervisors`` are left out.
    """
    gc.collect()
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that listed the folder
            found[_name(int(name))] += 1
    for kept in supervisors().values():
        del found[kept]
    return found


def alive(pid: int) -> bool:
    """Return True if the process runs (a zombie does not)."""
    state = stat(pid, 0)
    return state is not None and state not in "ZX"


def becomes(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Return True if the condition becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def stat(pid: int, field: int) -> str | None:
    """A field of /proc/PID/stat behind the name: 0 the state, 1 the parent; None: no such one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[field]
    except (OSError, IndexError):
        return None
