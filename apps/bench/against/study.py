"""Studies that time several pieces of work; each contestant runs all of them in its own process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from apps.bench.harness.case import Calls, Case, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target
from apps.bench.harness.turns import Result
from apps.profiling.limits import peak_now

from . import tables as t
from .sides import CONTESTANTS, PACKAGES, Side, Step, is_peer, takes_part

Build = Callable[[Side], Step]
Builds = Callable[[Settings], dict[str, Build]]


@dataclass(frozen=True)
class PieceStudy:
    """A study of pieces of work.

    what: heading of the column of names. builds: returns the pieces by name for the settings.
    contestants: names in sides.py. flops, moved: operations or bytes of a piece, from which its
    rate is computed. targets: returns the targets of a result. peaks: whether the machine's peak is
    measured with each of needle's samples.
    """

    TITLE: str
    what: str
    builds: Builds
    contestants: Sequence[str]
    flops: t.Count | None = None
    moved: t.Count | None = None
    targets: Callable[[Result], list[Target]] = lambda result: []
    peaks: bool = False

    def cases(self, settings: Settings) -> list[Case]:
        """Return a case for each contestant."""
        return cases_of(self.contestants, self.builds, settings, self.peaks)

    def tables(self, result: Result) -> list[str]:
        """Return the table of all pieces."""
        return t.pieces_table(self.what, result, self.flops, self.moved)


def cases_of(
    names: Sequence[str], builds: Builds, settings: Settings, peaks: bool = False
) -> list[Case]:
    """Return a case for each contestant that takes part."""
    return [
        case_of(name, name, partial(_opened, name, builds, peaks), settings)
        for name in names
        if takes_part(name, settings)
    ]


def case_of(
    name: str,
    contestant: str,
    open_it: Callable[[Settings], Subject],
    settings: Settings,
    **options: Any,
) -> Case:
    """Return a case, which is left out if a package of the contestant is missing."""
    return Case(
        name,
        open_it,
        environment=settings.environment(),
        needs=PACKAGES.get(contestant.partition(",")[0], ()),
        timeout=1200.0,  # torch.compile is slow
        **options,
    )


def _opened(name: str, builds: Builds, peaks: bool, settings: Settings) -> Subject:
    measured = peaks and settings.device == "cpu" and not is_peer(name)
    peak = peak_now(settings.threads) if measured else None
    return calls_of(CONTESTANTS[name](settings), builds(settings), settings.pick(0.1, 0.0), peak)


def calls_of(
    side: Side, builds: dict[str, Build], least: float, peak: Callable[[], float] | None = None
) -> Calls:
    """Return a side's pieces of work as measurements; a sample takes at least ``least`` seconds."""
    calls = {name: build(side) for name, build in builds.items()}
    return Calls(calls, least, wait=side.wait, release=side.release, peak=peak)
