"""Facts about processes from Linux's /proc, for tests that kill, count and wait."""

import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path

from needle.data.workers import shared_supervisor

INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""First line of programs that are sent Ctrl-C: background jobs may ignore SIGINT otherwise."""


def children(pid: int | None = None) -> set[int]:
    """Return all descendants of ``pid`` (by default this process), zombies included.

    Python's own resource tracker is left out, since it stays once anything has used
    multiprocessing.
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
    """Return the children except the supervisor, which stays for the next loader."""
    return children() - set(supervisors())


def supervisors() -> dict[int, str]:
    """Return the supervisors of this process, each with the name of its socket."""
    found = shared_supervisor._SUPERVISORS.get(os.getpid())
    return {} if found is None else {found.process.pid: _name(found._control.fileno())}


def _name(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}") if descriptor >= 0 else ""


def descriptors() -> Counter[str]:
    """Return the open files of this process, with one entry for each descriptor.

    ``descriptors() <= before`` is true if no file opened since then is still open. A plain count
    would change when an earlier test's garbage is collected, and could hide leaks. The sockets of
    ``supervisors`` are left out.
    """
    gc.collect()
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself
            found[_name(int(name))] += 1
    for kept in supervisors().values():
        del found[kept]
    return found


class Leftovers:
    """A snapshot of this process's resources: children, descriptors, threads, shared mappings."""

    def __init__(self) -> None:
        self.files, self.children = descriptors(), remaining()
        self.threads, self.mapped = set(threading.enumerate()), mappings()

    def new(self) -> list[object]:
        """Return how many more resources are held than at the start; ignore decreases."""
        found: list[object] = [
            *(descriptors() - self.files),
            *(remaining() - self.children),
            *(set(threading.enumerate()) - self.threads),
        ]
        return found if mappings() <= self.mapped else [*found, "shared mappings"]

    def assert_none(self) -> None:
        """Assert that the process soon holds no more resources than at the start."""
        assert becomes(lambda: not self.new()), self.new()


def mappings() -> int:
    """Return the number of needle's shared mappings in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:needle")


def alive(pid: int) -> bool:
    """Return True if the process runs (a zombie does not)."""
    state = stat(pid, 0)
    return state is not None and state not in "ZX"


def becomes(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Return True once the condition holds, or False at the timeout."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def stat(pid: int, field: int) -> str | None:
    """Return a field of /proc/PID/stat after the name (0: state, 1: parent), or None without it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[field]
    except (OSError, IndexError):
        return None
