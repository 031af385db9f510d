"""The engine without workers: ``collect`` prepares a batch in the calling thread.

Small batches that kernels alone make from arrays in memory are prepared several at a time, since
the Python code of one call costs half as much as the images of one such batch.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property

from ..batching.pipeline import Pipeline, Work
from ..samples.pytree import Slice
from ..samples.ticket import IndexRun, Ticket
from ..samples.timing import Clock
from .engine import Completed, Engine, closed_meanwhile

BYTES_TOGETHER = 1 << 25
"""The size of the batches that are prepared in one call."""


class InlineEngine(Engine):
    """Prepares batches in the calling thread.

    Nothing that draws from the global random streams is prepared ahead, so that the draws come in
    the order that the course expects.
    """

    name = "inline"
    capacity = 1

    def __init__(self, pipeline: Pipeline, *, workers: int = 0, prefetch: int = 1) -> None:
        self.pipeline = pipeline
        self._closed = False
        self._asked: deque[Ticket] = deque()
        self._run: IndexRun | None = None
        self._made: dict[int, Slice] = {}  # the batches of this run, by their first row

    def submit(self, ticket: Ticket) -> None:
        """Queue the ticket."""
        if self._closed:
            raise closed_meanwhile()
        self._asked.append(ticket)

    def collect(self, timeout: float | None = None) -> Completed:
        """Prepare the oldest ticket in this thread; after Ctrl-C it is still queued."""
        if self._closed:
            raise closed_meanwhile()
        ticket, clock = self._asked[0], Clock()
        done = Completed(ticket, seconds=clock.seconds)
        try:
            done.made = self._prepared(ticket, clock)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also a data set that calls sys.exit
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
        """Prepare the batch and, where that is faster, those after it in its run."""
        run, first, size = ticket.run, ticket.row, len(ticket.indices)
        count = BYTES_TOGETHER // (self._row_bytes * size) if size and self._row_bytes else 0
        if run is None or ticket.seed is None or count < 2:
            return {first: self.pipeline.prepare(ticket, Work(clock))}
        wide = ticket._replace(indices=run.indices[first : first + count * size])
        try:
            whole = self.pipeline.prepare(wide, Work(clock))
        except Exception:  # prepare one batch, to find the batch of the error
            return {first: self.pipeline.prepare(ticket, Work(clock))}
        return {
            first + row: whole.rows(slice(row, row + size)) for row in range(0, whole.samples, size)
        }

    @cached_property
    def _row_bytes(self) -> int | None:
        return self.pipeline.row_bytes()

    def cancel(self) -> None:
        """Forget the queued tickets."""
        self._asked.clear()
        self._made.clear()

    def close(self) -> None:
        """Forget the queued tickets; there is nothing else to free."""
        self._closed = True
