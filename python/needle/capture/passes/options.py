"""The options of ``needle.capture`` that the passes use."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNITS = {
    "": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(["", "K", "M", "G", "T"])},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate(["K", "M", "G", "T"], start=1)},
}
"""Units of byte counts given as text."""


@dataclass(frozen=True)
class Options:
    """The options of one captured step."""

    memory: int | None = None
    """The limit in bytes on the temporaries; None is no limit, 0 the least possible."""
    exact: bool = True
    """True if results must be bit-identical to the eager step."""
    inference: bool = False
    """True if the step runs under ``no_grad``."""


def byte_count(memory: int | str | None) -> int | None:
    """Return a number of bytes such as 800_000_000, "800MB" or "1.5GiB" as an int; "least" is 0.

    Raises ValueError for anything else, or for less than 1 byte.
    """
    if memory is None:
        return None
    if memory == "least":
        return 0
    number: float = 0
    unit = ""
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-zA-Z]*)\s*", memory)
        number, unit = (float(found[1]), found[2]) if found else (0, "")
    elif isinstance(memory, int) and not isinstance(memory, bool):
        number = memory
    count = int(number * UNITS.get(unit, 0))
    if count < 1:
        raise ValueError(
            f"capture: memory must be a positive number of bytes, got {memory!r}; pass an int, or "
            'text with a unit such as "800MB" or "1.5GiB", or "least"'
        )
    return count
