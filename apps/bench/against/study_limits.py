"""The limits of the machine, to which shares in the other studies refer."""

from __future__ import annotations

from apps.bench.data.case import Case, Once
from apps.bench.data.harness import Result
from apps.bench.data.target import Target, short, spread, table
from apps.profiling.limits import measure

from .settings import Settings

TITLE = "The machine's limits"
KEYS = {
    "gflops": "fused multiply-adds, float32, GFLOP/s",
    "gbs large": "a[i] = b[i] + s c[i], arrays of 34 MB, GB/s",
    "gbs small": "the same, arrays of 1 MB, GB/s",
}


def cases(settings: Settings) -> list[Case]:
    def open_it(given: Settings) -> Once:
        return Once(lambda: measure(given.threads, given.pick(0.1, 1e-3)))

    return [Case("machine", open_it)]


def tables(result: Result, limits: Result | None) -> list[str]:
    machine = result.outcomes["machine"]
    rows = [
        (
            words,
            short(max(machine.values.get(key, [float("nan")]))),
            spread(machine.median(key), machine.span(key)),
        )
        for key, words in KEYS.items()
    ]
    return table(("", "best", "median and range"), rows)


def sentence(result: Result) -> str:
    """Return the median and the range of each limit, in a line of Markdown."""
    machine = result.outcomes["machine"]
    found = [
        f"{spread(machine.median(key), machine.span(key))} {unit}"
        for key, unit in (("gflops", "GFLOP/s"), ("gbs large", "GB/s"), ("gbs small", "GB/s"))
    ]
    return (
        f"- {result.study}: fused multiply-adds in float32 {found[0]}; a[i] = b[i] + s c[i] on "
        f"arrays of 34 MB {found[1]}, on arrays of 1 MB {found[2]}."
    )


def targets(result: Result, limits: Result | None) -> list[Target]:
    return []
