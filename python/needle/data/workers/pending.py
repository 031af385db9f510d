"""Batches under way in the process engine, their slices, and what workers answer about them.

How a slice is issued and what a death means for it is processes.py's; where rows lie, slots.py's.
"""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from ...errors import WorkerError
from ..samples.pytree import Slice
from ..samples.ticket import NO_SAMPLE, Ticket
from .messages import DONE, FAILED, Answer, unpack_error, unpack_value
from .process_pool import Member
from .shared_ring import Ring


@dataclass(eq=False)
class Part:
    """A slice of a batch: rows first to last of it, issued ``attempt`` times before."""

    batch: Batch
    first: int
    last: int
    order: int
    attempt: int = 0
    deaths: Counter[int] = field(default_factory=Counter)
    done: Slice | None = None

    @property
    def number(self) -> int:
        """The number of this issue of the slice; older slices have smaller ones."""
        return self.order << 8 | self.attempt


@dataclass(eq=False)
class Batch:
    """A ticket under way.

    area, place, offset: where its indices lie. ring, slot: where its rows go.
    """

    ticket: Ticket
    rows: int
    area: int = -1
    place: int = -1
    offset: int = 0
    ring: Ring | None = None
    slot: int = -1
    parts: list[Part] = field(default_factory=list)
    records: set[int] = field(default_factory=set)
    error: tuple[int, BaseException] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    cancelled: bool = False


def read_answer(member: Member, answer: Answer, part: Part | None) -> Slice | BaseException | None:
    """A slice, an error, or None for one withdrawn. Always read: later ones refer to it."""
    try:
        if answer.kind == FAILED:
            return unpack_error(answer.payload, str(member))
        if answer.kind != DONE:
            return None
        if not answer.payload:
            samples = 0 if part is None else part.last - part.first
            structure, placed = member.heard["structure"], member.heard["placed"]
            return Slice(structure, [None] * len(placed), samples, placed)
        structure, leaves, samples, placed, skipped = unpack_value(answer.payload)
        member.heard.update(structure=structure, placed=placed)
        return Slice(structure, leaves, samples, placed, skipped)
    except Exception as error:
        failed = WorkerError(f"DataLoader: what {member} sent cannot be unpickled ({error!r})")
        failed.__cause__ = error
        return failed


def named(part: Part, sample: int) -> str:
    """A sample, or the samples of a slice that is fetched at once, for a message."""
    if sample != NO_SAMPLE:
        return f"sample {sample}"
    ticket = part.batch.ticket
    if ticket.is_stream:
        return f"shard {ticket.shard}"
    chosen = ticket.indices[part.first : part.last].tolist()
    shown = ", ".join(map(str, chosen[:8])) + (", ..." if len(chosen) > 8 else "")
    return f"samples [{shown}]"


def ending(member: Member) -> str:
    """How a worker's process ended, for a message."""
    code = member.child.code
    if code is None:
        return "ended for an unknown reason"
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def died_too_often(member: Member, part: Part, sample: int) -> WorkerError:
    """The error for a sample that one worker after another died at."""
    return WorkerError(
        f"DataLoader: worker processes died {part.deaths[sample]} times at "
        f"{named(part, sample)}, the last one {ending(member)}; look at that sample, or at the "
        f"memory it needs"
    )


def died(member: Member, parts: list[Part], sample: int) -> WorkerError:
    """The error for a worker that is not to be replaced, with what it was at."""
    samples = ", ".join(named(part, sample) for part in parts)
    return WorkerError(
        f"DataLoader: {member} {ending(member)} at {samples or 'no sample'}; "
        f"restart_workers=True replaces such a worker and loses nothing"
    )
