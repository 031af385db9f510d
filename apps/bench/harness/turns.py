"""Run the cases of a study in turns, and collect their numbers.

Each case has its own process. The cases of a group run round by round in shuffled order, so that
slow periods of the machine affect all of them.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from .case import Case, Numbers
from .contestant import Contestant, ContestantError
from .settings import Settings

Log = Callable[[str], None]


@dataclass
class Outcome:
    """The numbers of one case, by name. error: the reason why the case has failed, if it has."""

    case: str
    values: dict[str, list[float]] = field(default_factory=dict)
    error: str | None = None

    def add(self, numbers: Numbers) -> None:
        """Add a measurement."""
        for key, value in numbers.items():
            self.values.setdefault(key, []).append(float(value))

    def median(self, key: str) -> float:
        """Return the median over the rounds; nan if nothing was measured."""
        values = self.values.get(key)
        return statistics.median(values) if values else float("nan")

    def span(self, key: str) -> tuple[float, float]:
        """Return minimum and maximum; nan if nothing was measured."""
        values = self.values.get(key) or [float("nan")]
        return min(values), max(values)


@dataclass
class Result:
    """The result of a study: the outcome of each case, and notes.

    study: the study's name, and the number of threads if that was the same for all cases. limits:
    the machine's limits with as many threads, measured by the study "limits".
    """

    study: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    limits: Result | None = None

    @property
    def work(self) -> str:
        """The name of the study: "matmul" in "matmul, 2 threads"."""
        return self.study.partition(", ")[0]

    @property
    def threads(self) -> str:
        """The number of threads in words: "2 threads" in "matmul, 2 threads"."""
        return self.study.rpartition(", ")[2]

    def median(self, case: str, key: str) -> float:
        """Return the median of one case; nan if it did not run."""
        outcome = self.outcomes.get(case)
        return float("nan") if outcome is None else outcome.median(key)

    def ratio(self, case: str, other: str, key: str) -> float:
        """Return the median of one case over that of another."""
        return self.median(case, key) / self.median(other, key)

    def best(self, cases: Iterable[str], key: str) -> tuple[str, float]:
        """Return the case with the largest median, and the median; ("", nan) if none ran."""
        found = [(self.median(case, key), case) for case in cases]
        known = [pair for pair in found if pair[0] == pair[0]]
        return (max(known)[1], max(known)[0]) if known else ("", float("nan"))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values without ``limits``, which belongs to another study."""
        return asdict(dataclasses.replace(self, limits=None))

    @staticmethod
    def from_dict(record: dict[str, Any]) -> Result:
        """Return the result from the values of ``to_dict``."""
        outcomes = {name: Outcome(**each) for name, each in record["outcomes"].items()}
        return Result(**{**record, "outcomes": outcomes})


def run_study(name: str, cases: list[Case], settings: Settings, log: Log = print) -> Result:
    """Run every case of the study, group by group."""
    result = Result(name)
    for group in dict.fromkeys(case.group for case in cases):
        members = [case for case in cases if case.group == group]
        log(f"{name}{': ' + group if group else ''} ({len(members)} cases)")
        _run_group(result, members, settings, log)
    return result


def _run_group(result: Result, cases: list[Case], settings: Settings, log: Log) -> None:
    running: dict[str, Contestant] = {}
    try:
        for case in cases:
            outcome = result.outcomes[case.name] = Outcome(case.name)
            if missing := case.missing():
                why = f"needs {', '.join(missing)}, not installed"
            else:
                try:
                    running[case.name] = Contestant(result.study, case, settings)
                    continue
                except ContestantError as error:
                    why = outcome.error = str(error)
            log(f"  {case.name}: left out, {why}")
            result.notes.append(f"{case.name}: left out, {why}.")
        _take_turns(result, running, settings, log)
    finally:
        for contestant in running.values():
            contestant.close()


def _take_turns(
    result: Result,
    running: dict[str, Contestant],
    settings: Settings,
    log: Log,
) -> None:
    order = random.Random(settings.rounds)
    for number in range(settings.rounds):
        for name in order.sample(sorted(running), len(running)):
            contestant, outcome = running[name], result.outcomes[name]
            if number >= (contestant.case.rounds or settings.rounds):
                continue
            try:
                numbers = contestant.run()
            except ContestantError as error:
                outcome.error = f"failed in round {number + 1}: {error}"
                result.notes.append(f"{name}: {outcome.error}.")
                log(f"  {name}: {outcome.error}")
                running.pop(name).kill()
                continue
            outcome.add(numbers)
