"""The cases of a study, each opened in its own process and run in turns with others.

Studies list cases; contestant.py opens and runs one of them; harness.py schedules them.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Numbers = dict[str, float]


class Subject:
    """An opened case. first: the measurements of opening it."""

    def __init__(self) -> None:
        self.first: Numbers = {}

    def run(self, witness: bool) -> Numbers:
        """Return one measurement; with ``witness`` check every byte instead and time nothing."""
        raise NotImplementedError

    def close(self) -> None:
        """Release all resources."""


@dataclass(frozen=True)
class Case:
    """One contestant with one piece of work.

    name: unique in the study. open: called with the settings in the contestant's process.
    environment: additional variables of that process. needs: modules without which the case is left
    out, which the report mentions. group: cases of one group take turns. same_bytes: cases with one
    such tag must produce the same bytes. same_mean: the same mean of all pixels, within 3 %.
    rounds: replaces the number of rounds of the run. timeout: seconds allowed for one answer.
    """

    name: str
    open: Callable[[Any], Subject]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    group: str = ""
    same_bytes: str = ""
    same_mean: str = ""
    rounds: int | None = None
    timeout: float = 240.0

    def missing(self) -> list[str]:
        """Return the required modules that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


class Calls(Subject):
    """The time of a call of a function, repeated until a sample lasts ``least`` seconds."""

    def __init__(
        self,
        call: Callable[[], object],
        items: int = 1,
        least: float = 0.05,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self.call, self.items, self.clock = call, items, clock
        call()
        self.calls = 1
        while self._seconds() < least:
            self.calls *= 2

    def run(self, witness: bool) -> Numbers:
        """Return microseconds per item."""
        return {"us": self._seconds() / self.calls / self.items * 1e6}

    def _seconds(self) -> float:
        started = self.clock()
        for _ in range(self.calls):
            self.call()
        return self.clock() - started


class Once(Subject):
    """A measurement that times itself. warm: discard a first call."""

    def __init__(self, measure: Callable[[], Numbers], warm: bool = False) -> None:
        super().__init__()
        self.measure = measure
        if warm:
            measure()

    def run(self, witness: bool) -> Numbers:
        """Return the result of ``measure``; nothing with ``witness``."""
        return {} if witness else self.measure()
