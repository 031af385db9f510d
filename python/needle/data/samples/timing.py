"""The clock of a slice, which measures the seconds of each stage (``STAGES``).

The pipeline passes a ``Clock`` to every stage. A dataset measures decoding separately from reading
with ``with measured("decode"):``, which is a no-op outside a loader. The loader adds up the
seconds of all slices, and engines divide batches by them (``parts_of``).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from time import perf_counter

from ...contexts import assigned

STAGES = ("read", "decode", "augment", "collate", "wait_data")
"""The stages for which a loader reports time and samples."""
MOST_PARTS = 32
"""The maximum number of parts into which a batch is divided."""
_PARTS_PER_WORKER = 4
_SHORT = 2e-3  # Seconds; for shorter parts messages are too expensive.
_FAIR = 20e-3  # Seconds; shorter parts cost a tenth more, so use them only for idle workers.
_LONG = 50e-3  # Seconds; longer parts are split, so that workers finish together.


class Clock:
    """The seconds that one thread spent in each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inner = 0.0  # seconds of the stages nested in the current one

    def measure(self, stage: str) -> AbstractContextManager[None]:
        """Measure the block as ``stage``, excluding stages that are measured inside it."""
        return _Measured(self, stage)

    def active(self) -> AbstractContextManager[Clock | None]:
        """Make ``measured`` use this clock inside the block."""
        return assigned(_active, self)


class _Measured:
    """A timed block; it is a class since a generator would take as long as a small batch."""

    __slots__ = ("before", "clock", "stage", "start")

    def __init__(self, clock: Clock, stage: str) -> None:
        self.clock, self.stage = clock, stage

    def __enter__(self) -> None:
        self.before, self.clock.inner = self.clock.inner, 0.0
        self.start = perf_counter()

    def __exit__(self, *exception: object) -> None:
        clock, elapsed = self.clock, perf_counter() - self.start
        seconds = clock.seconds.get(self.stage, 0.0)
        clock.seconds[self.stage] = seconds + elapsed - clock.inner
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


def parts_of(rows: int, workers: int, in_flight: int, each: float | None) -> list[slice]:
    """Return the parts into which a batch of ``rows`` rows is divided for workers.

    Each part has an overhead of about a millisecond. Whole batches in flight keep the workers busy
    as well, so a batch is split only if there are fewer batches than workers, or if the last parts
    of an epoch would take long. in_flight: the number of batches prepared at the same time.
    each: the seconds that a worker takes for one row, None if unknown.
    """
    count = min(workers, MOST_PARTS, max(1, rows))
    if each is not None:
        seconds = rows * each
        one_for_each = -(-(workers + 1) // in_flight)  # one part per worker and one in reserve
        fair = max(one_for_each, int(seconds / _FAIR))
        more = min(int(seconds / _LONG), _PARTS_PER_WORKER * workers, MOST_PARTS, rows)
        count = max(1, min(count, int(seconds / _SHORT), fair), more)
    return [slice(rows * i // count, rows * (i + 1) // count) for i in range(count)]


def measured(stage: str) -> AbstractContextManager[None]:
    """Measure a block as ``stage`` of the loader that runs it; a no-op outside a loader."""
    clock = _active.get()
    return nullcontext() if clock is None else clock.measure(stage)
