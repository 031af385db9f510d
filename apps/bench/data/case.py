"""What a study is made of: cases, each opened in a process of its own and run in turns.

Studies list cases; contestant.py opens and runs one of them; harness.py decides when.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Numbers = dict[str, float]


class Subject:
    """An opened case. ``first`` holds what opening it has measured."""

    def __init__(self) -> None:
        self.first: Numbers = {}

    def run(self, witness: bool) -> Numbers:
        """One measurement; as a witness it looks at every byte instead, and times nothing."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends what it holds."""


@dataclass(frozen=True)
class Case:
    """One contestant at one piece of work.

    name: unique in the study. open: called with the settings, in the contestant's process.
    environment: that process's, beside ours. needs: modules without which it is left out, and the
    report says so. group: cases of one group take turns. twin: cases with one twin must give the
    same bytes; alike: the same mean of all pixels, within 3 %. rounds: instead of the run's.
    patience: seconds that one answer may take.
    """

    name: str
    open: Callable[[Any], Subject]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    group: str = ""
    twin: str = ""
    alike: str = ""
    rounds: int | None = None
    patience: float = 240.0

    def missing(self) -> list[str]:
        """Of the modules that it needs, those not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


class Calls(Subject):
    """Time of one call of a function, repeated until a sample lasts ``least`` seconds."""

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
        """Microseconds an item."""
        return {"us": self._seconds() / self.calls / self.items * 1e6}

    def _seconds(self) -> float:
        started = self.clock()
        for _ in range(self.calls):
            self.call()
        return self.clock() - started


class Once(Subject):
    """A measurement that times itself; the first call is thrown away where it ``warms``."""

    def __init__(self, measure: Callable[[], Numbers], warm: bool = False) -> None:
        super().__init__()
        self.measure = measure
        if warm:
            measure()

    def run(self, witness: bool) -> Numbers:
        """What ``measure`` says; nothing as a witness."""
        return {} if witness else self.measure()
