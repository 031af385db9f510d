"""Cases made of pieces of work: one process for each contestant with all pieces."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from apps.bench.harness.case import Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.profiling.limits import peak_now

from .sides import COMPILED, CONTESTANTS, GRAPHED, SLOW, Side, Step, is_peer

Build = Callable[[Side], Step]
PEAK = " (peak)"
"""Suffix of a piece's name for the machine's GFLOP/s at the time of its samples."""


class Pieces(Subject):
    """Milliseconds per call of each piece, repeated until a sample lasts ``least`` seconds.

    Every sample starts with an untimed call, because the process was idle before. peak: measures
    the machine's GFLOP/s before and after each sample; the result is stored as "NAME (peak)".
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
        """Return a sample of each piece; nothing with ``witness``."""
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
        """Return the number of calls of a sample.

        The first call, which may compile, is not timed.
        """
        step()
        return max(1, int(least / max(self._seconds(step, 1), 1e-7)))

    def _seconds(self, step: Step, calls: int) -> float:
        self.side.wait()
        started = self.clock()
        for _ in range(calls):
            step()
        self.side.wait()
        return self.clock() - started


def cases_of(
    names: Sequence[str],
    builds: Callable[[Settings], dict[str, Build]],
    settings: Settings,
    peaks: bool = False,
) -> list[Case]:
    """Return a case for each contestant; needle's slow variants have at most two rounds.

    peaks: measure the machine's peak with each of needle's samples.
    """

    return [
        case_of(name, name, partial(_opened, name, builds, peaks), settings, rounds=rounds)
        for name in names
        if takes_part(name, settings)
        for rounds in [min(2, settings.rounds) if name in SLOW else None]
    ]


def takes_part(name: str, settings: Settings) -> bool:
    """Return True if the contestant exists on the device of the run, and was not left out."""
    if name in SLOW or name == GRAPHED:
        return (name == GRAPHED) == (settings.device != "cpu")
    return settings.compiled or name != COMPILED


def _opened(
    name: str, builds: Callable[[Settings], dict[str, Build]], peaks: bool, settings: Settings
) -> Subject:
    return measured_pieces(
        CONTESTANTS[name](settings), builds, settings, peaks and not is_peer(name)
    )


def measured_pieces(
    side: Side, builds: Callable[[Settings], dict[str, Build]], settings: Settings, peaks: bool
) -> Pieces:
    """Return the pieces of a side, with samples as long as the settings ask for."""
    clock = time.process_time if settings.cpu_time else time.perf_counter
    peak = peak_now(settings.threads) if peaks and settings.device == "cpu" else None
    return Pieces(side, builds(settings), settings.pick(0.1, 0.0), clock, peak)


def case_of(
    name: str,
    contestant: str,
    open_it: Callable[[Settings], Subject],
    settings: Settings,
    **options: Any,
) -> Case:
    """Return a case, which is left out if the contestant's library is missing."""
    return Case(
        name,
        open_it,
        environment=settings.environment(),
        needs=("torch",) if is_peer(contestant) else (),
        timeout=1200.0,  # torch.compile is slow
        **options,
    )
