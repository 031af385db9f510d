"""The engine without workers: ``collect`` prepares a batch in the calling thread.

If native kernels prepare small batches from arrays in memory, one call prepares several batches,
since the Python overhead of a call is half the time that the images of one batch take.
"""

from __future__ import annotations

from collections import deque

from ..batching.collate import Slice
from ..batching.pipeline import Pipeline, Work
from ..samples.ticket import IndexRun, Ticket
from ..samples.timing import Clock
from .engine import Completed, Engine, closed_meanwhile

BYTES_TOGETHER = 1 << 25
"""The maximum bytes of the batches that are prepared in one call."""


class InlineEngine(Engine):
    """The engine that prepares batches in the calling thread.

    Without a seed, no batch is prepared ahead, so that the global random streams are consumed in
    the order that the course expects.
    """

    name = "inline"
    capacity = 1

    def __init__(self, pipeline: Pipeline, *, workers: int = 0, prefetch: int = 1) -> None:
        self._closed = False
        self._asked: deque[Ticket] = deque()
        self._run: IndexRun | None = None
        # the prepared batches of this run, keyed by their first row
        self._made: dict[int, Slice] = {}
        self.renew(pipeline)

    def renew(self, pipeline: Pipeline) -> bool:
        """Prepare further batches, including queued tickets, by ``pipeline``."""
        self.pipeline, self._run = pipeline, None
        self._row_bytes: int | None = -1  # unknown before the first batch
        return False

    def submit(self, ticket: Ticket) -> None:
        """Queue the ticket."""
        if self._closed:
            raise closed_meanwhile()
        self._asked.append(ticket)

    def collect(self, timeout: float | None = None) -> Completed:
        """Prepare the oldest ticket in this thread; it stays queued after a Ctrl-C."""
        if self._closed:
            raise closed_meanwhile()
        ticket, clock = self._asked[0], Clock()
        done = Completed(ticket, seconds=clock.seconds)
        try:
            done.made = self._prepared(ticket, clock)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # such as the SystemExit of a data set that calls sys.exit
            done.error = error
        if self._closed:
            raise closed_meanwhile()
        self._asked.popleft()
        return done

    def _prepared(self, ticket: Ticket, clock: Clock) -> Slice:
        if ticket.run is None or ticket.run is not self._run or ticket.row not in self._made:
            self._run, self._made = ticket.run, self._together(ticket, clock)
        return self._made.pop(ticket.row)

    def _together(self, ticket: Ticket, clock: Clock) -> dict[int, Slice]:
        """Prepare the batch and, if that is faster, the batches after it in its run."""
        if self._row_bytes == -1:
            self._row_bytes = self.pipeline.row_bytes()
        run, first, size = ticket.run, ticket.row, len(ticket.indices)
        count = BYTES_TOGETHER // (self._row_bytes * size) if size and self._row_bytes else 0
        if run is None or ticket.seed is None or count < 2:
            return {first: self.pipeline.prepare(ticket, Work(clock))}
        wide = ticket._replace(indices=run.indices[first : first + count * size])
        try:
            whole = self.pipeline.prepare(wide, Work(clock))
        except Exception:  # prepare one batch at a time, to find out which one fails
            return {first: self.pipeline.prepare(ticket, Work(clock))}
        return {
            first + row: whole.rows(slice(row, row + size)) for row in range(0, whole.samples, size)
        }

    def cancel(self) -> None:
        """Discard the queued tickets."""
        self._asked.clear()
        self._made.clear()

    def close(self) -> None:
        """Mark the engine as closed; it owns nothing that must be freed."""
        self._closed = True
