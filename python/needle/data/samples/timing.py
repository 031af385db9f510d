"""The clock of a slice, which measures the seconds of each stage (``STAGES``).

The pipeline passes a ``Clock`` to every stage. A dataset measures decoding separately from reading
with ``with measured("decode"):``, which is a no-op outside a loader. The loader adds up the
seconds of all slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from time import perf_counter

from ...contexts import assigned

STAGES = ("read", "decode", "augment", "collate", "wait_data")
"""The stages whose time and samples a loader reports."""


class Clock:
    """The seconds that one thread spent in each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inner = 0.0  # seconds of the stages nested in the current one

    def add(self, stage: str, seconds: float) -> None:
        """Add ``seconds`` to ``stage``."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def measure(self, stage: str) -> AbstractContextManager[None]:
        """Measure the block as ``stage``, excluding the stages measured inside the block."""
        return _Measured(self, stage)

    def active(self) -> AbstractContextManager[Clock | None]:
        """Make ``measured`` use this clock inside the block."""
        return assigned(_active, self)


class _Measured:
    """A timed block; a class, since a generator would cost as much as a small batch."""

    __slots__ = ("before", "clock", "stage", "start")

    def __init__(self, clock: Clock, stage: str) -> None:
        self.clock, self.stage = clock, stage

    def __enter__(self) -> None:
        self.before, self.clock.inner = self.clock.inner, 0.0
        self.start = perf_counter()

    def __exit__(self, *exception: object) -> None:
        clock, elapsed = self.clock, perf_counter() - self.start
        clock.add(self.stage, elapsed - clock.inner)
        clock.inner = self.before + elapsed


_active: ContextVar[Clock | None] = ContextVar("needle_stage_clock", default=None)


def add_seconds(total: dict[str, float], seconds: Mapping[str, float]) -> None:
    """Add the seconds of each stage to ``total``."""
    for stage, value in seconds.items():
        total[stage] = total.get(stage, 0.0) + value


def smoothed(before: float | None, seconds: Mapping[str, float], samples: int) -> float:
    """Return the moving average of the seconds per sample, updated by one measurement."""
    now = sum(seconds.values()) / samples
    return now if before is None else 0.8 * before + 0.2 * now


def measured(stage: str) -> AbstractContextManager[None]:
    """Measure a block as ``stage`` of the loader that runs it; a no-op outside a loader."""
    clock = _active.get()
    return nullcontext() if clock is None else clock.measure(stage)
