"""The table of all studies of loaders: rates, CPU time, first batch, memory."""

from __future__ import annotations

from collections.abc import Iterable

from .harness import Result
from .target import short, spread, table

HEAD = (
    "samples/s, median (range)",
    "from construction",
    "CPU s per 1000",
    "first batch, s",
    "peak memory, MiB",
)


def rate_table(result: Result, cases: Iterable[str]) -> list[str]:
    """Return a table with a row for each measured case."""
    rows = []
    for name in cases:
        outcome = result.outcomes.get(name)
        if outcome is None or "rate" not in outcome.values:
            continue
        rows.append(
            [
                name,
                spread(outcome.median("rate"), outcome.span("rate")),
                short(outcome.median("rate_from_construction")),
                short(outcome.median("cpu")),
                short(outcome.median("first_batch")),
                short(outcome.median("pss") / 2**20),
            ]
        )
    return table(("", *HEAD), rows)
