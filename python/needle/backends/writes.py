"""Two facts recorded for each buffer: its last write, and whether a host array shares its memory.

A handle has two attributes. ``written`` is the time of the last write that replaced older values, 0
if there was none; times are counts of events. ``shared`` is True if a host array has ever shared
the memory, so that writes may go unnoticed. ``ndarray`` sets them; ``autograd`` and ``capture``
compare times.
"""

from __future__ import annotations

from itertools import count
from typing import Any

now = count(1).__next__
"""Return the next time."""
_latest = 0


def note_write(handle: Any) -> None:
    """Record that a kernel writes to the buffer ``handle``, which may hold older values."""
    global _latest
    handle.written = _latest = now()


def note_shared(handle: Any) -> None:
    """Record that a host array shares a buffer's memory, so that writes may go unnoticed."""
    global _latest
    handle.shared, _latest = True, now()


def is_shared(handle: Any) -> bool:
    """Return True if a host array shares, or has shared, the memory of the buffer."""
    return getattr(handle, "shared", False) is True


def latest() -> int:
    """Return the time at which any buffer was last written to or shared."""
    return _latest


def written_since(handle: Any, time: int) -> bool:
    """Return True if the buffer ``handle`` was written to after ``time``."""
    return getattr(handle, "written", 0) > time
