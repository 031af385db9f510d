"""The options of ``needle.capture`` that passes read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """What a program asks of the passes."""
