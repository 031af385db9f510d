"""Classify a worker's death: killed from outside, by a sample, or during start-up.

Kills from outside slow an epoch down but do not end it at once: workers are restarted with a
back-off that grows while no part of a batch is finished. It is an error if a sample kills its
worker every time, or if a worker exits by itself during start-up. processes.py reports deaths here.
"""

from __future__ import annotations

import signal
import time
import warnings

from ...errors import WorkerError
from ..samples.ticket import NO_SAMPLE
from .pending import Part
from .process_pool import WorkerHandle

# An error after this many consecutive deaths at one sample, plus one per kill from outside.
_DEATHS = 3
_MOST_KILLS = 50  # The maximum of kills from outside added to ``_DEATHS``.
# An error after this many consecutive equal deaths during start-up, by exit or by fault signal.
_START_EXITS, _START_FAULTS = 2, 6
_FAULTS = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGABRT}
_AT_ONCE = 8  # Consecutive deaths before restarts are delayed.
_PAUSE, _LONGEST_PAUSE = 1e-4, 0.5  # Seconds; the back-off doubles at each death.
_PATIENCE = 300.0  # An error after this many seconds of deaths without progress.


class Deaths:
    """The deaths of an engine's workers since its epoch began or a part was last finished."""

    def __init__(self) -> None:
        self._kills = 0  # Number of deaths that were certainly caused from outside.
        self._starting: list[int | None] = []  # Exit codes of consecutive deaths during start-up.
        self._count, self._since, self._next_start = 0, 0.0, 0.0

    def started(self) -> None:
        """Record that a worker is ready."""
        self._starting.clear()

    def finished(self, part: Part) -> None:
        """Record that a part was finished, so that its samples did not cause earlier deaths."""
        self._kills += part.deaths
        self._count, self._next_start = 0, 0.0

    def add(self, death: str) -> None:
        """Record a death; raise WorkerError after ``_PATIENCE`` seconds without progress."""
        now = time.monotonic()
        self._since = self._since if self._count else now
        self._count += 1
        if self._count <= _AT_ONCE:
            return
        self._next_start = now + min(_LONGEST_PAUSE, _PAUSE * 2.0 ** min(self._count, 30))
        text = (
            f"DataLoader: worker processes died {self._count} times in {now - self._since:.1f} s "
            f"before they finished anything (the last time: {death})"
        )
        if now - self._since > _PATIENCE:
            raise WorkerError(f"{text}; look for what kills them, or use engine='threads'")
        if self._count == _AT_ONCE + 1:
            warnings.warn(f"{text}; restarting them", RuntimeWarning, stacklevel=2)

    def wait_seconds(self) -> float:
        """Return the seconds until workers may be started again, at least 0."""
        return max(0.0, self._next_start - time.monotonic()) if self._next_start else 0.0

    def starter_killed(self, error: WorkerError) -> None:
        """Record that the supervisor was killed; raise WorkerError as ``add`` does."""
        self._kills += 1
        self.add(str(error))

    def starting(self, member: WorkerHandle) -> WorkerError | None:
        """Return an error if the worker that died during start-up caused its own death.

        A data set that crashes the worker does so in the same way each time; signals from outside
        vary.
        """
        code = member.code  # None if the supervisor died as well
        if code is None or (code < 0 and code not in _FAULTS):
            self._kills += 1
            self._starting.clear()
            return None
        if code not in self._starting:
            self._kills += len(self._starting)
            self._starting.clear()
        self._starting.append(code)
        if len(self._starting) < (_START_FAULTS if code < 0 else _START_EXITS):
            return None
        return WorkerError(
            f"DataLoader: worker processes die while they start ({member.ending()}); look for "
            f"their message above, or use engine='threads'"
        )

    def at_sample(self, member: WorkerHandle, part: Part, sample: int) -> WorkerError | None:
        """Return an error if the worker died at this sample and the sample is the cause."""
        code = member.code
        if sample != part.suspect:  # the previous suspect has been read without a death
            self._kills += part.deaths
            part.suspect, part.deaths = sample, 0
        if code is None:
            self._kills += 1
            return None
        part.deaths += 1
        pardoned = min(self._kills, _MOST_KILLS) if code < 0 else 0
        if part.deaths < _DEATHS + pardoned:
            return None
        return WorkerError(
            f"DataLoader: worker processes died {part.deaths} times at {named(part, sample)}, the "
            f"last one {member.ending()}; look at that sample, or at the memory it needs"
        )


def named(part: Part, sample: int) -> str:
    """Describe the sample, or all samples of a part if they are fetched at once."""
    if sample != NO_SAMPLE:
        return f"sample {sample}"
    ticket = part.batch.ticket
    if ticket.is_stream:
        return f"shard {ticket.shard}"
    chosen = ticket.indices[part.first : part.last].tolist()
    shown = ", ".join(map(str, chosen[:8])) + (", ..." if len(chosen) > 8 else "")
    return f"samples [{shown}]"
