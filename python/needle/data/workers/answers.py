"""The answers of worker processes: slices, errors, and error messages for workers that died.

Called by processes.py.
"""

from __future__ import annotations

import signal
from contextlib import suppress

from ...errors import WorkerError
from ..samples.pytree import Slice
from ..samples.ticket import NO_SAMPLE
from .messages import DONE, FAILED, WorkerAnswer, unpack_error
from .pending import Part
from .pickling import unpack_value
from .process_pool import WorkerHandle


def read_answer(
    member: WorkerHandle, answer: WorkerAnswer, part: Part | None
) -> Slice | BaseException | None:
    """Return a slice, an error, or None for a part that was withdrawn.

    Every answer must be read, since later ones leave out what an earlier one said.
    """
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
        failed = WorkerError(f"DataLoader: the answer of {member} cannot be unpickled ({error!r})")
        failed.__cause__ = error
        return failed


def named(part: Part, sample: int) -> str:
    """Return the name of a sample, or of the samples of a part that is fetched at once."""
    if sample != NO_SAMPLE:
        return f"sample {sample}"
    ticket = part.batch.ticket
    if ticket.is_stream:
        return f"shard {ticket.shard}"
    chosen = ticket.indices[part.first : part.last].tolist()
    shown = ", ".join(map(str, chosen[:8])) + (", ..." if len(chosen) > 8 else "")
    return f"samples [{shown}]"


def ending(member: WorkerHandle) -> str:
    """Return how a worker process ended, for an error message."""
    code = member.child.code
    if code is None:
        return "ended for an unknown reason"
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def died_too_often(member: WorkerHandle, part: Part) -> WorkerError:
    """Return the error for a sample at which several workers died in succession."""
    return WorkerError(
        f"DataLoader: worker processes died {part.deaths} times at "
        f"{named(part, part.suspect)}, the last one {ending(member)}; look at that sample, or "
        f"at the memory it needs"
    )


def died(member: WorkerHandle, parts: list[Part], sample: int) -> WorkerError:
    """Return the error for a dead worker that is not replaced, with its samples."""
    samples = ", ".join(named(part, sample) for part in parts)
    return WorkerError(
        f"DataLoader: {member} {ending(member)} at {samples or 'no sample'}; "
        f"restart_workers=True replaces such a worker and loses nothing"
    )
