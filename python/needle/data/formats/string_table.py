"""StringTable, which stores millions of strings, such as paths, in two arrays (bytes, offsets).

Reference counting writes to every string of a Python list, so each worker process would end up
with its own copy. Arrays stay shared, and pickle protocol 5 transfers them out of band.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import SupportsIndex

import numpy as np


class StringTable:
    """An immutable sequence of strings; ``table[i]`` decodes string ``i``.

    data: uint8, all strings concatenated as UTF-8. offsets: int64 ``(n + 1,)``, the start of each
    string and the end of the last. File names that are not UTF-8 (Python's surrogate escapes) are
    preserved.
    """

    def __init__(self, strings: Iterable[str] = ()) -> None:
        data, ends = bytearray(), array("q", [0])
        for string in strings:
            data += string.encode("utf-8", "surrogateescape")
            ends.append(len(data))
        self.data = np.frombuffer(bytes(data), dtype=np.uint8)
        self.offsets = np.array(ends, dtype=np.int64)
        self.offsets.setflags(write=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> str:
        place = int(index)
        if not -len(self) <= place < len(self):
            raise IndexError(
                f"StringTable: index must be in [-{len(self)}, {len(self)}), got {place}"
            )
        place %= len(self)
        start, end = self.offsets[place], self.offsets[place + 1]
        return self.data[start:end].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))
