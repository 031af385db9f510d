"""The cases of a study, each opened in its own process and run in turns with others.

Studies list cases; contestant.py opens and runs one of them; turns.py schedules them.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Numbers = dict[str, float]
Call = Callable[[], object]
PEAK = " (peak)"
"""Suffix in the name of a measurement: the machine's GFLOP/s, measured along with a call's."""


class Subject:
    """An opened case."""

    def run(self) -> Numbers:
        """Return one measurement."""
        raise NotImplementedError

    def close(self) -> None:
        """Release all resources."""


@dataclass(frozen=True)
class Case:
    """One contestant with one piece of work.

    name: unique in the study. open: called with the settings in the contestant's process; returns
    the measurement. environment: additional variables of that process. needs: modules without which
    the case is left out, which the report mentions. group: cases of one group take turns. rounds:
    replaces the number of rounds of the run. timeout: seconds allowed for one answer.
    """

    name: str
    open: Callable[[Any], Subject]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    group: str = ""
    rounds: int | None = None
    timeout: float = 240.0

    def missing(self) -> list[str]:
        """Return the required modules that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


class Calls(Subject):
    """Milliseconds per call of each function, repeated until a sample lasts ``least`` seconds.

    Every sample starts with an untimed call, because the process was idle before. items: results
    are divided by this number. wait: returns when the device has finished all work. release: called
    after each sample. peak: measures the machine's GFLOP/s before and after each sample; the result
    is stored as "NAME (peak)".
    """

    def __init__(
        self,
        calls: Mapping[str, Call],
        least: float,
        *,
        items: float = 1,
        clock: Callable[[], float] = time.perf_counter,
        wait: Call = lambda: None,
        release: Call = lambda: None,
        peak: Callable[[], float] | None = None,
    ) -> None:
        self.calls, self.items, self.clock = calls, items, clock
        self.wait, self.release, self.peak = wait, release, peak
        self.counts = {name: self._count(call, least) for name, call in calls.items()}

    def run(self) -> Numbers:
        """Return a sample of each function."""
        numbers: Numbers = {}
        for name, call in self.calls.items():
            call()
            before = self.peak() if self.peak else 0.0
            seconds = self._seconds(call, self.counts[name])
            numbers[name] = seconds / self.counts[name] / self.items * 1e3
            if self.peak:
                numbers[name + PEAK] = (before + self.peak()) / 2
            self.release()
        return numbers

    def _count(self, call: Call, least: float) -> int:
        """Return the number of calls of a sample, after untimed ones that may compile."""
        call()
        if not least:
            return 1
        call()
        return max(1, int(least / max(self._seconds(call, 1), 1e-7)))

    def _seconds(self, call: Call, count: int) -> float:
        self.wait()
        started = self.clock()
        for _ in range(count):
            call()
        self.wait()
        return self.clock() - started


class Once(Subject):
    """A measurement that times itself."""

    def __init__(self, measure: Callable[[], Numbers]) -> None:
        self.measure = measure

    def run(self) -> Numbers:
        """Return the result of ``measure``."""
        return self.measure()
