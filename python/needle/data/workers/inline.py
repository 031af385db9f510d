"""The engine without workers: a batch is prepared in the caller's thread when it is collected.

Small batches that kernels alone make of arrays in memory are made some at a time: a call finds the
cache full of images, not of the program, and costs half as much again as the images of one batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import cached_property

from ..batching.pipeline import Pipeline
from ..samples.pytree import Slice
from ..samples.ticket import IndexRun
from ..samples.timing import Clock
from .engine import Completed, Engine, Request

BYTES_TOGETHER = 1 << 25
"""Of batches that are made at a time."""


class InlineEngine(Engine):
    """Runs nothing of the program's own ahead, so draws from global random streams come in the
    course's order."""

    name = "inline"
    capacity = 1

    def __init__(self, pipeline: Pipeline, *, workers: int = 0, prefetch: int = 1) -> None:
        self.pipeline = pipeline
        self._asked: deque[Request] = deque()
        self._run: IndexRun | None = None
        self._made: dict[int, Slice] = {}  # of this run, by the first row

    def submit(self, request: Request) -> None:
        """Notes the request."""
        self._asked.append(request)

    def collect(self, timeout: float | None = None) -> Completed:
        """Prepares the oldest request here and now; Ctrl-C leaves it asked for."""
        request, clock = self._asked[0], Clock()
        try:
            part = self._prepared(request, clock)
        except Exception as error:
            self._asked.popleft()
            return Completed(request.serial, error=error, seconds=clock.seconds)
        self._asked.popleft()
        return Completed(request.serial, part.batch(), samples=part.samples, seconds=clock.seconds)

    def _prepared(self, request: Request, clock: Clock) -> Slice:
        if request.run is None or request.run is not self._run or request.row not in self._made:
            self._run, self._made = request.run, self._together(request, clock)
        return self._made.pop(request.row)

    def _together(self, request: Request, clock: Clock) -> dict[int, Slice]:
        """The batch and, where it is worth it, those that follow it in its run, by the row."""
        run, first = request.run, request.row
        size = 0 if request.indices is None else len(request.indices)
        count = BYTES_TOGETHER // (self._row_bytes * size) if size and self._row_bytes else 0
        if run is None or request.seed is None or count < 2:
            return {first: self.pipeline.prepare(request, clock=clock)}
        wide = replace(request, indices=run.indices[first : first + count * size])
        try:
            whole = self.pipeline.prepare(wide, clock=clock)
        except Exception:  # of which batch?
            return {first: self.pipeline.prepare(request, clock=clock)}
        return {
            first + row: whole.rows(slice(row, row + size)) for row in range(0, whole.samples, size)
        }

    @cached_property
    def _row_bytes(self) -> int | None:
        return self.pipeline.row_bytes()

    def cancel(self) -> None:
        """Forgets the requests."""
        self._asked.clear()
        self._made.clear()

    def close(self) -> None:
        """Forgets the requests; there is nothing else."""
        self.cancel()
