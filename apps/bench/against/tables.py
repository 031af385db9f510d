"""Table rows and targets from measured pieces: needle's fastest over the peer's fastest."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from apps.bench.harness.case import PEAK
from apps.bench.harness.target import Target, median_and_range, short, spread, table
from apps.bench.harness.turns import Result

from .sides import OURS, is_peer

Count = Callable[[str], float]


def pieces_of(result: Result) -> list[str]:
    """Return the pieces in the order of measurement."""
    outcome = result.outcomes.get(OURS[0])
    names = outcome.values if outcome else ()
    return [name for name in names if not name.endswith(PEAK)]


def fastest(result: Result, names: Iterable[str], piece: str) -> str:
    """Return the contestant with the smallest median; "" if none was measured."""
    found = [(result.median(name, piece), name) for name in names]
    return min(((value, name) for value, name in found if value == value), default=(0, ""))[1]


def duel(result: Result, piece: str) -> tuple[str, str]:
    """Return needle's fastest contestant and the fastest peer."""
    peers = [name for name in result.outcomes if is_peer(name)]
    return fastest(result, OURS, piece), fastest(result, peers, piece)


def ratios(result: Result, ours: str, theirs: str, piece: str) -> list[float]:
    """Return the peer's times divided by needle's, paired by rounds."""
    if not ours or not theirs:
        return []
    mine, other = (result.outcomes[name].values.get(piece, []) for name in (ours, theirs))
    return [b / a for a, b in zip(mine, other)]


def median(values: Sequence[float]) -> float:
    """Return the median; nan if there are no values."""
    return statistics.median(values) if values else math.nan


def pieces_table(
    what: str,
    result: Result,
    flops: Count | None = None,
    moved: Count | None = None,
) -> list[str]:
    """Return a table of pieces: milliseconds of each contestant, ratio, rate and its share."""
    names = [
        name
        for name in result.outcomes
        if any(p in result.outcomes[name].values for p in pieces_of(result))
    ]
    unit = "GFLOP/s" if flops else "GB/s"
    head = [what, *(f"{name}, ms" for name in names), "times as fast", unit, "of the limit"]
    rows = []
    for piece in pieces_of(result):
        ours, theirs = duel(result, piece)
        found = ratios(result, ours, theirs, piece)
        ratio = spread(median(found), (min(found), max(found))) if found else "–"
        speed, share = rate(result, piece, flops, moved)
        times = [short(result.median(name, piece)) for name in names]
        rows.append((piece, *times, ratio, short(speed), percent(share)))
    return table(head, rows)


def rate(
    result: Result, piece: str, flops: Count | None, moved: Count | None
) -> tuple[float, float]:
    """Return needle's best rate in 10^9 per second, and its share of the machine's limit.

    If the limit was measured with each sample, the share is the median over the samples; else the
    limit is the best of all its measurements.
    """
    count, ours = flops or moved, duel(result, piece)[0]
    if count is None or not ours:
        return math.nan, math.nan
    key = "gflops" if flops else f"gbs {piece.rpartition(', ')[2]}"
    values = result.outcomes[ours].values
    speeds = [count(piece) / ms / 1e6 for ms in values[piece]]
    beside = values.get(piece + PEAK) or [limit(result, key)] * len(speeds)
    return median(speeds), median([speed / most for speed, most in zip(speeds, beside)])


def limit(result: Result, key: str) -> float:
    """Return the best of all measurements of the machine's limit."""
    outcome = result.limits.outcomes.get("machine") if result.limits else None
    values = outcome.values.get(key) if outcome else None
    return max(values) if values else math.nan


def percent(share: float) -> str:
    """Return a share in percent; a dash for nan."""
    return "–" if math.isnan(share) else f"{share:.0%}"


def least(name: str, result: Result, goal: float, pieces: Sequence[str] | None = None) -> Target:
    """Return a target for the piece of work with the smallest speed ratio."""
    found = []
    for piece in pieces or pieces_of(result):
        ours, theirs = duel(result, piece)
        paired = ratios(result, ours, theirs, piece)
        value = median(paired)
        if value == value:
            words = [
                f"{who.removeprefix('PyTorch, ')}: {median_and_range(result, who, piece)} ms"
                for who in (ours, theirs)
            ]
            span = (min(paired), max(paired))
            found.append((value, piece if len(pieces or "ab") > 1 else "", words, span))
    if not found:
        return Target(name, math.nan, goal, "–")
    value, piece, (mine, other), span = min(found)
    mine = f"{piece}: {mine}" if piece else mine
    return Target(name, value, goal, mine, other, span=span)


def share_targets(name: str, result: Result, flops: Count, goal: float) -> list[Target]:
    """Return the smallest share of the arithmetic peak as a target."""
    shares = [
        (share, piece)
        for piece in pieces_of(result)
        if not math.isnan(share := rate(result, piece, flops, None)[1])
    ]
    title = f"{name}, {result.threads}, share of the FMA peak, the least"
    if not shares:
        return [Target(title, math.nan, goal, "–")]
    share, piece = min(shares)
    beside = result.outcomes[OURS[0]].values.get(piece + PEAK)
    peak = median(beside) if beside else limit(result, "gflops")
    return [Target(title, share, goal, piece, f"peak {short(peak)} GFLOP/s")]
