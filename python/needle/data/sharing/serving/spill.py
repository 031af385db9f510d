"""A bounded file for samples that memory has no room for; it has no name and ends with its process.

Written as a ring: the newest overwrites the oldest. Only cache.py writes here.
"""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class SpillFile:
    """Bytes by key, at most ``limit_bytes`` of them, in a nameless file in ``folder``.

    folder: the system's for temporary files by default. OSError where it cannot be made.
    """

    def __init__(self, limit_bytes: int, folder: str | os.PathLike[str] | None = None) -> None:
        if limit_bytes <= 0:
            raise ValueError(f"SpillFile: limit_bytes must be above 0, got {limit_bytes}")
        self.limit_bytes = limit_bytes
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  # 0600, no name
        self._places: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()  # oldest first
        self._head = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._places

    def write(self, key: Hashable, data: Any) -> bool:
        """Keeps these bytes; False where they are none or too many, or the disk is full."""
        view = memoryview(data).cast("B")
        length = len(view)
        if not 0 < length <= self.limit_bytes:
            return False
        if self._head + length > self.limit_bytes:
            self._free(self._head, self.limit_bytes)
            self._head = 0
        start, end = self._head, self._head + length
        self._free(start, end)
        self._places.pop(key, None)
        try:
            written = os.pwrite(self._file.fileno(), view, start)
        except OSError:
            return False
        if written < length:
            return False
        self._places[key] = (start, length)
        self._head = end
        return True

    def read(self, key: Hashable) -> bytes | None:
        """The bytes kept under this key, None where there are none (any more)."""
        if key not in self._places:
            return None
        start, length = self._places[key]
        data = os.pread(self._file.fileno(), length, start)
        return data if len(data) == length else None

    def close(self) -> None:
        """Gives the disk space back."""
        self._places.clear()
        self._file.close()

    def _free(self, start: int, end: int) -> None:
        """Forgets what lies there: the oldest, for the ring comes round to them in order."""
        while self._places:
            place, length = next(iter(self._places.values()))
            if not (place < end and place + length > start):
                break
            self._places.popitem(last=False)
