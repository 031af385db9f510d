"""The options of ``needle.capture`` that passes read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The options of one captured step."""
