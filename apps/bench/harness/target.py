"""Targets with their results, each a row of the report's table; formatting of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .turns import Result


@dataclass(frozen=True)
class Target:
    """A target: ``value`` must be at least ``goal``, or with ``at_most`` at most ``goal``.

    ours, peer: the compared measurements as text with units; peer may be empty. span: the range of
    ``value`` over the rounds, if it is known.
    """

    what: str
    value: float
    goal: float
    ours: str
    peer: str = ""
    at_most: bool = False
    unit: str = "×"
    span: tuple[float, float] | None = None

    @property
    def measured(self) -> bool:
        """True if there is a value."""
        return not math.isnan(self.value)

    @property
    def reached(self) -> bool:
        """True if the goal is reached; False if nothing was measured."""
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    @property
    def verdict(self) -> str:
        """The result as text."""
        if not self.measured:
            return "not measured"
        return "reached" if self.reached else "**not reached**"

    def row(self) -> str:
        """Return a row of the table."""
        sign = "≤" if self.at_most else "≥"
        written = spread(self.value, self.span or (self.value, self.value))
        value = f"{written} {self.unit}" if self.measured else "–"
        goal = f"{sign} {short(self.goal)} {self.unit}"
        return f"| {self.what} | {self.ours} | {self.peer} | {value} | {goal} | {self.verdict} |"


def short(value: float) -> str:
    """Return three significant digits, with spaces between thousands; a dash for nan."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}".replace(",", " ")
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def spread(value: float, span: tuple[float, float]) -> str:
    """Return a median and its range as text."""
    if math.isnan(value):
        return "–"
    low, high = span
    return short(value) if low == high else f"{short(value)} ({short(low)}–{short(high)})"


def median_and_range(result: Result, case: str, key: str) -> str:
    """Return the median of one case's measurements and their range, as text."""
    outcome = result.outcomes.get(case)
    return "–" if outcome is None else spread(outcome.median(key), outcome.span(key))


def versus(
    what: str,
    result: Result,
    cases: tuple[str, str],
    goal: float,
    key: str = "rate",
    unit: str = "",
    **options: Any,
) -> Target:
    """Return two cases' ratio of medians as a target. unit: the unit of the measurements."""
    words = [f"{name}: {median_and_range(result, name, key)} {unit}".rstrip() for name in cases]
    return Target(what, result.ratio(*cases, key), goal, *words, **options)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table and an empty line."""
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]
