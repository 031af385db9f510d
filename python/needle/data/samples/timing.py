"""The clock of one slice of work: seconds by stage (``STAGES``).

The pipeline hands a ``Clock`` down; a dataset that wants its decoding told apart from reading
writes ``with measured("decode"):`` around it, inside a loader or not. Adding up over slices is the
loader's.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from time import perf_counter

STAGES = ("read", "decode", "augment", "collate", "wait_slot", "wait_data")
"""The stages whose time and samples a loader counts."""


class Clock:
    """Seconds by stage, of one thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inner = 0.0  # what stages within the present one took

    def add(self, stage: str, seconds: float) -> None:
        """Counts ``seconds`` to ``stage``."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def merge(self, seconds: Mapping[str, float]) -> None:
        """Adds another clock's seconds."""
        for stage, value in seconds.items():
            self.add(stage, value)

    def measure(self, stage: str) -> AbstractContextManager[None]:
        """Counts the time of the block to ``stage``, less that of stages measured inside it."""
        return _Measured(self, stage)

    def active(self) -> AbstractContextManager[None]:
        """Within the block ``measured`` counts on this clock."""
        return _Active(self)


class _Measured:
    """A block under way; a class, since generators would cost as much as a small batch."""

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


class _Active:
    __slots__ = ("clock", "token")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __enter__(self) -> None:
        self.token = _active.set(self.clock)

    def __exit__(self, *exception: object) -> None:
        _active.reset(self.token)


_active: ContextVar[Clock | None] = ContextVar("needle_stage_clock", default=None)


def measured(stage: str) -> AbstractContextManager[None]:
    """Counts the block to ``stage`` of the loader that runs it; nothing outside one."""
    clock = _active.get()
    return nullcontext() if clock is None else clock.measure(stage)
