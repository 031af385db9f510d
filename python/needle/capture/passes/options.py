"""The options of ``needle.capture``; the passes read the first three."""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIXES = " KMGT"
"""Prefixes for "B", in ascending powers of 1000, or of 1024 before "iB"."""


@dataclass(frozen=True)
class Options:
    """The options of one captured step."""

    memory: int | None = None
    """The limit in bytes on temporary memory; None: no limit, 0: as little as possible."""
    exact: bool = True
    """True if results must be bit-identical to the eager step."""
    inference: bool = False
    """True if the step runs under ``no_grad``."""
    graphs: bool = True
    """True if kernels may be launched as one device graph."""
    recordings: int = 8
    """Number of recordings that are kept."""
    check: bool = True
    """True if replays are compared with the step now and then."""


def byte_count(memory: int | str | None) -> int | None:
    """Return a number of bytes such as 800_000_000, "800MB" or "1.5GiB" as an int; "least" is 0.

    Raises ValueError for anything else, or for less than 1 byte.
    """
    if memory is None or memory == "least":
        return None if memory is None else 0
    found = None
    if isinstance(memory, (int, str)) and not isinstance(memory, bool):
        found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*(?:([KMGT]?)(i?)B)?", str(memory).strip())
    count = 0
    if found is not None:
        number, prefix, binary = found.groups()
        count = int(float(number) * (1024 if binary else 1000) ** PREFIXES.index(prefix or " "))
    if count < 1:
        raise ValueError(
            f"capture: memory must be a positive number of bytes, got {memory!r}; pass an int, or "
            'text with a unit such as "800MB" or "1.5GiB", or "least"'
        )
    return count
