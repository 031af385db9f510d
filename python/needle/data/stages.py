"""The clock of one slice of work: seconds by stage (``engines.base.STAGES``).

The pipeline hands a ``Clock`` down; a dataset that wants its decoding told apart from reading
writes ``with measured("decode"):`` around it, inside a loader or not. Adding up over slices is the
loader's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter


class Clock:
    """Seconds by stage, of one thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0  # what stages within the present one took

    def add(self, stage: str, seconds: float) -> None:
        """Counts ``seconds`` to ``stage``."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def merge(self, seconds: Mapping[str, float]) -> None:
        """Adds another clock's seconds."""
        for stage, value in seconds.items():
            self.add(stage, value)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Counts the time of the block to ``stage``, less that of stages measured inside it."""
        before, self._inner = self._inner, 0.0
        start = perf_counter()
        try:
            yield
        finally:
            elapsed = perf_counter() - start
            self.add(stage, elapsed - self._inner)
            self._inner = before + elapsed

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within the block ``measured`` counts on this clock."""
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)


_active: ContextVar[Clock | None] = ContextVar("needle_stage_clock", default=None)


@contextmanager
def measured(stage: str) -> Iterator[None]:
    """Counts the block to ``stage`` of the loader that runs it; nothing outside one."""
    clock = _active.get()
    if clock is None:
        yield
    else:
        with clock.measure(stage):
            yield
