"""A study of pieces of work, which one process of each contestant measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from apps.bench.harness.case import Case
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target
from apps.bench.harness.turns import Result

from . import tables as t
from .pieces import Build, cases_of


@dataclass(frozen=True)
class PieceStudy:
    """A study of pieces.

    what: heading of the column of names. builds: the pieces by name for the settings. contestants:
    names in sides.py; a quick run takes the first ``quick``. flops, moved: operations or bytes of
    a piece, for its rate. targets: of a result. note: explains the table. peaks: measure the
    machine's peak with each sample.
    """

    TITLE: str
    what: str
    builds: Callable[[Settings], dict[str, Build]]
    contestants: Sequence[str]
    flops: t.Count | None = None
    moved: t.Count | None = None
    targets: Callable[[Result], list[Target]] = lambda result: []
    note: str = ""
    peaks: bool = False
    quick: int = 2

    def cases(self, settings: Settings) -> list[Case]:
        """Return a case for each contestant."""
        names = settings.pick(self.contestants, self.contestants[: self.quick])
        return cases_of(names, self.builds, settings, self.peaks)

    def tables(self, result: Result) -> list[str]:
        """Return the table of all pieces."""
        lines = [self.note, ""] if self.note else []
        return lines + t.pieces_table(self.what, result, self.flops, self.moved)
