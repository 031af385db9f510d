"""How pieces of work become cases: one process for each contestant, which holds all pieces."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from apps.bench.data.case import Case, Numbers, Subject
from apps.profiling.limits import peak_now

from .settings import Settings
from .sides import COMPILED, CONTESTANTS, SLOW, Side, Step, is_peer

Build = Callable[[Side], Step]
PEAK = " (peak)"
"""After a piece's name: GFLOP/s that the machine could do in the moments of its samples."""


class Pieces(Subject):
    """Milliseconds of a call of each piece, repeated until a sample lasts ``least`` seconds.

    Every sample begins with a call that is not timed: its process has slept meanwhile. peak: the
    machine's GFLOP/s, asked for right before and after each sample, kept as "NAME (peak)".
    """

    def __init__(
        self,
        side: Side,
        builds: dict[str, Build],
        least: float,
        clock: Callable[[], float] = time.perf_counter,
        peak: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        self.clock, self.peak = clock, peak
        self.side, self.steps = side, {name: build(side) for name, build in builds.items()}
        self.calls = {}
        for name, step in self.steps.items():
            step()
            self.calls[name] = self._calls_for(step, least) if least else 1

    def run(self, witness: bool) -> Numbers:
        """One sample of each piece; nothing as a witness."""
        if witness:
            return {}
        numbers = {}
        for name, step in self.steps.items():
            step()
            before = self.peak() if self.peak else 0.0
            numbers[name] = self._seconds(step, self.calls[name]) / self.calls[name] * 1e3
            if self.peak:
                numbers[name + PEAK] = (before + self.peak()) / 2
            self.side.release()
        return numbers

    def _calls_for(self, step: Step, least: float) -> int:
        """How many calls last so long; the first, which may compile or record, does not count."""
        step()
        return max(1, int(least / max(self._seconds(step, 1), 1e-7)))

    def _seconds(self, step: Step, calls: int) -> float:
        started = self.clock()
        for _ in range(calls):
            step()
        return self.clock() - started


def cases_of(
    names: Sequence[str],
    builds: Callable[[Settings], dict[str, Build]],
    settings: Settings,
    peaks: bool = False,
) -> list[Case]:
    """A case for each contestant that takes part; the slow ones of ours have two rounds at most.

    peaks: the machine's peak is measured beside each of our samples.
    """

    def opener(name: str) -> Callable[[Settings], Subject]:
        def open_it(given: Settings) -> Subject:
            side = CONTESTANTS[name](given.threads)
            clock = time.process_time if given.cpu_time else time.perf_counter
            peak = peak_now(given.threads) if peaks and not is_peer(name) else None
            return Pieces(side, builds(given), given.pick(0.1, 0.0), clock, peak)

        return open_it

    slow = min(2, settings.rounds)
    return [
        case_of(name, name, opener(name), settings, rounds=slow if name in SLOW else None)
        for name in names
        if settings.compiled or name != COMPILED
    ]


def case_of(
    name: str,
    contestant: str,
    open_it: Callable[[Settings], Subject],
    settings: Settings,
    **options: Any,
) -> Case:
    """A case that is left out where the contestant's library is missing."""
    return Case(
        name,
        open_it,
        environment=settings.environment(),
        needs=(settings.peer,) if is_peer(contestant) else (),
        timeout=1200.0,  # torch.compile takes its time
        **options,
    )
