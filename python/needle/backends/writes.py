"""When a buffer was written to last, as a count of events, and whether a host array shares it.

``ndarray`` notes writes and shares; ``autograd`` and ``capture`` compare times.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

now = count(1).__next__
"""Return the next time."""
_written: dict[int, int] = {}
_last_write = _last_shared = 0
_shared: WeakValueDictionary[int, Any] = WeakValueDictionary()


def note_write(handle: Any) -> None:
    """Note that a kernel writes to the buffer ``handle``, which may hold older values."""
    # Entries of freed buffers stay: a later buffer of the same id is used after that time only.
    global _last_write
    _written[id(handle)] = _last_write = now()


def last_write() -> int:
    """Return the time of the last write to any buffer, or of the last call of ``note_shared``."""
    return max(_last_write, _last_shared)


def note_shared(handle: Any) -> None:
    """Note that a host array shares the memory of a buffer, so that writes to it are not seen."""
    global _last_shared
    with suppress(TypeError):  # a handle without weak references
        _shared[id(handle)] = handle
    _last_shared = now()


def is_shared(handle: Any) -> bool:
    """Return True if the buffer's memory was shared with a host array."""
    return id(handle) in _shared


def buffer_written_since(handle: Any, time: int) -> bool:
    """Return True if the buffer ``handle`` was written to after ``time``."""
    return _written.get(id(handle), 0) > time
