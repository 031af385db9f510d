"""The engine without workers: a batch is prepared in the caller's thread when it is collected."""

from __future__ import annotations

from collections import deque

from ..pipeline import Pipeline
from ..stages import Clock
from .base import Completed, Engine, Request


class InlineEngine(Engine):
    """Prepares nothing ahead, so draws from global random streams come in the course's order."""

    name = "inline"
    capacity = 1

    def __init__(self, pipeline: Pipeline, *, workers: int = 0, prefetch: int = 1) -> None:
        self.pipeline = pipeline
        self._asked: deque[Request] = deque()

    def submit(self, request: Request) -> None:
        """Notes the request."""
        self._asked.append(request)

    def collect(self, timeout: float | None = None) -> Completed:
        """Prepares the oldest request here and now; Ctrl-C leaves it asked for."""
        request, clock = self._asked[0], Clock()
        try:
            part = self.pipeline.prepare(request, clock=clock)
        except Exception as error:
            self._asked.popleft()
            return Completed(request.serial, error=error, seconds=clock.seconds)
        self._asked.popleft()
        return Completed(request.serial, part.batch(), samples=part.samples, seconds=clock.seconds)

    def cancel(self) -> None:
        """Forgets the requests."""
        self._asked.clear()

    def close(self) -> None:
        """Forgets the requests; there is nothing else."""
        self._asked.clear()
